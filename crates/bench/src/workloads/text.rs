//! Seeded text that reads like data: words of syllables, of which some are
//! frequent and most are rare, as in natural language (Zipf).

use fastrand::Rng;

const SYLLABLES: [&str; 32] = [
    "an", "ber", "co", "dar", "el", "fin", "gor", "hu", "in", "jo", "ka", "lem", "mi", "nor", "o",
    "pra", "qui", "ri", "sten", "ta", "ur", "ven", "wol", "xa", "yo", "zen", "sh", "tri", "bel",
    "mar", "ches", "ly",
];

/// How many different words there are.
const VOCABULARY: usize = 20_000;

/// A vocabulary.
#[derive(Debug)]
pub(super) struct Words {
    words: Vec<String>,
}

impl Words {
    /// The vocabulary of a seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let word = |_| {
            (0..random.usize(1..5)).map(|_| SYLLABLES[random.usize(..SYLLABLES.len())]).collect()
        };
        Words { words: (0..VOCABULARY).map(word).collect() }
    }

    /// A word; its frequency falls with its rank.
    pub(super) fn pick(&self, random: &mut Rng) -> &str {
        // The logarithm of a uniform variable spreads ranks as 1/rank does.
        let rank = (VOCABULARY as f64).powf(random.f64()) as usize - 1;
        &self.words[rank.min(VOCABULARY - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_text() {
        let text = |seed| {
            let words = Words::new(seed);
            let mut random = Rng::with_seed(seed);
            (0..100).map(|_| words.pick(&mut random).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
