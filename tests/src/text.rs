//! Text to work on: that of a user compresses neither as noise does nor as what a program repeats.

use std::io::Write;

/// Lines of made-up words and a number, which compress as text does.
pub fn lines(lines: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 16] = [
        "ka", "ri", "ven", "tor", "el", "mo", "sha", "lin", "du", "par", "os", "qui", "hem", "a",
        "ter", "yo",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |count: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize % count
    };
    let mut text = Vec::new();
    for _ in 0..lines {
        for _ in 0..3 + draw(6) {
            let word: String = (0..1 + draw(4)).map(|_| SYLLABLES[draw(16)]).collect();
            write!(text, "{word} ").expect("in memory");
        }
        writeln!(text, "{}", draw(1_000_000)).expect("in memory");
    }
    text
}
