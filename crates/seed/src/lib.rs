//! What random tests draw from: one generator, whose seed is printed and can be given.
//!
//! `ZPAGER_SEED=N cargo test ...` repeats what a run with that seed did.

pub use fastrand::Rng as Random;

/// The seed that `$ZPAGER_SEED` gives, or `usual`. Prints it.
///
/// # Panics
/// The variable holds something else than a whole number.
pub fn seed(usual: u64) -> u64 {
    let given = std::env::var("ZPAGER_SEED").ok();
    let seed = given.map_or(usual, |text| text.parse().expect("ZPAGER_SEED: a whole number"));
    println!("ZPAGER_SEED={seed}");
    seed
}

/// Draws from [`seed`].
///
/// # Panics
/// As [`seed`] does.
pub fn random(usual: u64) -> Random {
    Random::with_seed(seed(usual))
}
