//! NumPy's Fourier transform of a square of random complex numbers: the fft of
//! the documents (cervera, hp and castro all run one). Random floating-point
//! values compress by a few percent only: the hard case for every pool.

use anyhow::Result;

use super::{Job, Preparation, Workload, plain_job, python};

/// Side of the square at scale 1.
const SIDE: u64 = 2048;
/// Transforms there and back.
const ROUNDS: u64 = 4;

pub(super) struct Fft;

impl Workload for Fft {
    fn name(&self) -> &str {
        "fft"
    }

    fn about(&self) -> &str {
        "NumPy: 2048 x 2048 complex Fourier transforms there and back, about 270 MiB"
    }

    fn missing(&self) -> Option<String> {
        let is_there = python::find("numpy").is_some();
        (!is_there).then(|| "needs NumPy (package python3-numpy)".into())
    }

    fn prepare(&self, preparation: &Preparation) -> Result<Job> {
        let arguments = [preparation.scaled_side(SIDE), ROUNDS, preparation.seed];
        let program = python::script(preparation, include_str!("fft.py"), "numpy", &arguments)?;
        Ok(plain_job(program, Vec::new()))
    }
}
