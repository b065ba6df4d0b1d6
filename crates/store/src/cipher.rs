//! Encryption of records, for a store that others may read or write.
//!
//! Source: AES-256-GCM, NIST SP 800-38D with its deterministic nonces (8.2.1), by the `aes-gcm`
//! crate, which uses the processor's instructions where there are any.
//!
//! Invariant: no nonce comes twice under one key. A nonce is the store's number, the record's
//! offset, and the generation of its cluster. One process owns a cluster from a claim on, writes
//! each place in it at most once, and what was written before the next claim does not bear that
//! claim's generation. The claims of a cluster are counted in memory that all processes of the run
//! share, and there is none after the last number ([`Clusters::claim`](crate::Clusters::claim)). A
//! key is one run's. It would come twice if a snapshot of the whole machine were resumed twice.
//!
//! As place and generation are in the nonce, a record that was altered, moved, or that an earlier
//! life of the cluster left does not come back as another, whoever put it there.
//!
//! Bad for: processors without AES instructions, some fifty times slower.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag};

use crate::Place;

/// Length of a key.
pub const KEY_BYTES: usize = 32;
/// Length of what a record has beside its data.
pub(crate) const TAG_BYTES: usize = 16;

const NONCE_BYTES: usize = 12;
const STORE_BYTES: usize = 2;
const OFFSET_BYTES: usize = 6;

const _: () = assert!(Place::STORE_BYTES_MAX <= 1 << (8 * OFFSET_BYTES));
const _: () = assert!(STORE_BYTES + OFFSET_BYTES + size_of::<u32>() == NONCE_BYTES);

/// A key, ready to be used for one store.
#[derive(Debug)]
pub struct Cipher {
    algorithm: Aes256Gcm,
    store: u16,
}

impl Cipher {
    /// For the store of this number, which no other has under the same key.
    pub fn new(key: &[u8; KEY_BYTES], store: u16) -> Self {
        Cipher { algorithm: Aes256Gcm::new(key.into()), store }
    }

    fn nonce(&self, place: Place, generation: u32) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        let (store, rest) = nonce.split_at_mut(STORE_BYTES);
        let (offset, life) = rest.split_at_mut(OFFSET_BYTES);
        store.copy_from_slice(&self.store.to_le_bytes());
        offset.copy_from_slice(&place.offset_bytes().to_le_bytes()[..OFFSET_BYTES]);
        life.copy_from_slice(&generation.to_le_bytes());
        nonce
    }

    /// Encrypts `data` in place, once for each place and generation; gives the tag.
    pub(crate) fn encrypt(
        &self,
        data: &mut [u8],
        place: Place,
        generation: u32,
    ) -> [u8; TAG_BYTES] {
        let nonce = Nonce::from(self.nonce(place, generation));
        let tag = self.algorithm.encrypt_inout_detached(&nonce, &[], data.into());
        tag.expect("a record is shorter than the most that one nonce encrypts").into()
    }

    /// Decrypts `data` in place; false if they are not what was encrypted there, and nothing of them
    /// is decrypted.
    #[must_use]
    pub(crate) fn decrypt(
        &self,
        data: &mut [u8],
        tag: [u8; TAG_BYTES],
        place: Place,
        generation: u32,
    ) -> bool {
        let nonce = Nonce::from(self.nonce(place, generation));
        self.algorithm.decrypt_inout_detached(&nonce, &[], data.into(), &Tag::from(tag)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::format;

    fn coordinates() -> impl Strategy<Value = (u16, u64, u32)> {
        let near = || (0u16..2, 0..4u64, 0..3u32);
        let far = (any::<u16>(), 0..Place::STORE_BYTES_MAX / 8, any::<u32>());
        prop_oneof![near(), far].prop_map(|(store, grain, life)| (store, grain * 8, life))
    }

    proptest! {
        #[test]
        fn a_nonce_is_of_one_place_in_one_life(one in coordinates(), other in coordinates()) {
            let nonce = |(store, offset, life)| {
                Cipher::new(&[7; KEY_BYTES], store).nonce(Place::new(offset, 1), life)
            };
            prop_assert_eq!(one == other, nonce(one) == nonce(other));
        }
    }

    #[test]
    fn only_what_was_encrypted_there_comes_back() {
        let cipher = Cipher::new(&[3; KEY_BYTES], 1);
        let place = Place::new(4096, 100);
        let mut data = [5; 100];
        let tag = cipher.encrypt(&mut data, place, 2);
        let opened = |key, store, place, generation| {
            let mut data = data;
            Cipher::new(&key, store).decrypt(&mut data, tag, place, generation) && data == [5; 100]
        };
        assert!(opened([3; KEY_BYTES], 1, place, 2));
        assert!(!opened([4; KEY_BYTES], 1, place, 2));
        assert!(!opened([3; KEY_BYTES], 2, place, 2));
        assert!(!opened([3; KEY_BYTES], 1, Place::new(4104, 100), 2));
        assert!(!opened([3; KEY_BYTES], 1, place, 3));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert!(!format!("{:?}", Cipher::new(&[99; KEY_BYTES], 1)).contains("99"));
    }
}
