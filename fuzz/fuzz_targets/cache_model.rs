//! The model of the cache's own tests, driven by the input: a design, a codec, a pool, a store that fails, then steps.
#![no_main]

#[path = "../../crates/cache/tests/model/mod.rs"]
mod model;

use libfuzzer_sys::fuzz_target;
use model::{Setting, Step};
use zpager_codec::CodecId;
use zpager_policy::{DesignId, StoreCodec};

/// Steps of one run, so that it takes no more than some tenths of a second.
const STEPS_MAX: usize = 200;

/// What may compress pages once more that leave for the store.
const STORE_CODECS: [StoreCodec; 4] = [
    StoreCodec::None,
    StoreCodec::Auto,
    StoreCodec::Always(CodecId::Zstd),
    StoreCodec::Always(CodecId::ZstdDictionary),
];

fuzz_target!(|data: &[u8]| {
    let Some((&[codec, faults, seed, pool], steps)) = data.split_first_chunk() else { return };
    let setting = Setting {
        design: DesignId::ALL[usize::from(pool / 5) % DesignId::ALL.len()],
        codec: CodecId::ALL[usize::from(codec) % CodecId::ALL.len()],
        pool_bytes_max: (64 << 10) << (pool % 5),
        seed: seed.into(),
        one_in: (faults % 16).into(),
        behind: faults >= 128,
        encrypts: faults & 64 != 0,
        store_codec: STORE_CODECS[usize::from(faults / 16 % 4)],
    };
    let (steps, _) = steps.as_chunks();
    model::run(setting, steps.iter().take(STEPS_MAX).map(|bytes| Step::from_bytes(*bytes)));
});
