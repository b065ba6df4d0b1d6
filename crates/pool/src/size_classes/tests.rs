//! What is the size classes' own: where neighbours lie, what is noticed, and their waste on several
//! distributions.

extern crate std;
use crate::testing::{MIB, Owner, heap_len, random};
use crate::{Handle, Heap, Pool, SizeClasses};
use std::boxed::Box;
use std::println;
use std::vec::Vec;
use zpager_seed::Random;

#[test]
fn neighbours_in_time_lie_together() {
    let mut pool = SizeClasses::reserve(&Heap, MIB).unwrap();
    let handles: Vec<_> = (0..8).map(|_| pool.insert(&[7; 1000]).unwrap()).collect();
    for pair in handles.windows(2) {
        assert_eq!(pair[1].raw() - pair[0].raw(), 1024 / Handle::GRAIN_BYTES as u64);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_second_removal_is_noticed() {
    // A panic ends the process where panics abort, so the second removal runs in a child.
    const NAME: &str = "ZPAGER_POOL_REMOVES_TWICE";
    if std::env::var_os(NAME).is_some() {
        let mut pool = SizeClasses::reserve(&Heap, MIB).unwrap();
        let handle = pool.insert(&[7; 1000]).unwrap();
        pool.insert(&[7; 1000]).unwrap();
        pool.remove(handle, 1000);
        pool.remove(handle, 1000);
        return;
    }
    let test = std::env::current_exe().unwrap();
    let output = std::process::Command::new(test)
        .args(["--exact", "size_classes::tests::a_second_removal_is_noticed"])
        .env(NAME, "1")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = [output.stdout, output.stderr].concat();
    let said = std::string::String::from_utf8_lossy(&said);
    assert!(said.contains("the object was removed before"), "{said}");
}

/// Fills to about 8 MiB of payload and churns four times over; the worst waste on the way.
fn churn(mut next_len: impl FnMut(&mut Random) -> usize) -> f64 {
    let mut random = random();
    let mut owner = Owner::new(Box::new(SizeClasses::reserve(&Heap, 64 * MIB).unwrap()));
    while owner.pool.payload_bytes() < 8 * MIB {
        let len = next_len(&mut random);
        owner.insert(len);
    }
    let objects = owner.objects.len();
    let (mut worst, mut sum, mut samples) = (owner.waste(), 0.0, 0);
    for round in 0..4 * objects {
        let index = random.usize(..owner.objects.len());
        owner.remove(index);
        let len = next_len(&mut random);
        owner.insert(len);
        if round % 64 == 0 {
            worst = worst.max(owner.waste());
            sum += owner.waste();
            samples += 1;
        }
    }
    println!(
        "{objects} objects: waste {:.4} at worst, {:.4} on average; {} compactions moved {}; \
         metadata {:.2} bytes an object; space used up to {:.2} of the RAM held",
        worst,
        sum / samples as f64,
        owner.compactions,
        owner.moved,
        owner.pool.metadata_bytes() as f64 / objects as f64,
        (owner.pool.runs.touched_pages() * 4096) as f64 / owner.pool.held_bytes() as f64,
    );
    worst
}

#[test]
fn waste_is_at_most_a_tenth_on_even_lengths() {
    assert!(churn(|random| random.usize(300..=3000)) <= 0.1);
}

#[test]
fn waste_is_at_most_a_tenth_on_lengths_as_of_a_heap() {
    assert!(churn(heap_len) <= 0.1);
}

#[test]
fn waste_is_at_most_a_tenth_when_all_lengths_are_equal() {
    for len in [256, 300, 337, 450, 513, 700, 817, 1025, 1105, 1361, 1537, 2049, 2177, 2721, 3072] {
        assert!(churn(|_| len) <= 0.1, "{len}");
    }
}

#[test]
fn waste_is_at_most_a_tenth_when_lengths_drift() {
    let mut step = 0;
    assert!(
        churn(|random| {
            step += 1;
            let base = 300 + step / 16 % 2400;
            base + random.usize(..300)
        }) <= 0.1
    );
}

#[test]
fn waste_is_at_most_a_tenth_after_a_class_shift() {
    let mut random = random();
    for (first, second) in [(1000, 1500), (2900, 400), (310, 2800), (600, 600), (2048, 1024)] {
        let mut owner = Owner::new(Box::new(SizeClasses::reserve(&Heap, 64 * MIB).unwrap()));
        while owner.pool.payload_bytes() < 16 * MIB {
            owner.insert(first);
        }
        for _ in 0..owner.objects.len() * 9 / 10 {
            let index = random.usize(..owner.objects.len());
            owner.remove(index);
        }
        while owner.pool.payload_bytes() < 16 * MIB {
            owner.insert(second);
        }
        println!("{first} then {second}: waste {:.4}, {} moved", owner.waste(), owner.moved);
        assert!(owner.waste() <= 0.1);
    }
}
