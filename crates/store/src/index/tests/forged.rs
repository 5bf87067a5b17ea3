//! Files whose checksums are right and whose numbers are not: no panic, no endless work, and no
//! more memory than the file is long.

use super::super::header::{HEADER_BYTES, stamp};
use super::*;

const NUMBERS: [u64; 8] = [0, 1, 2, 255, 4096, 1 << 32, u64::MAX / 4096, u64::MAX];

/// Puts each of the numbers, in each of the sizes, at every place of `at..at + bytes` and gives
/// the file to `stamp`, then asks everything.
fn forge(contents: &Contents, at: usize, bytes: usize, stamp: impl Fn(&mut [u8])) {
    let good = encode(&IDENTITY, contents).unwrap();
    for place in at..at + bytes {
        for (number, size) in NUMBERS
            .iter()
            .flat_map(|n| [1, 2, 4, 8].map(|size| (n, size)))
        {
            let mut forged = good.clone();
            let size = size.min(at + bytes - place);
            forged[place..place + size].copy_from_slice(&number.to_le_bytes()[..size]);
            stamp(&mut forged);
            let fs = fs_with(forged);
            let Ok(index) = open(&fs) else { continue };
            for part in &contents.streams {
                let _ = index.stream(&part.stream);
                let _ = index.stream_summary(&part.stream);
            }
            for (hash, _) in &contents.pieces {
                let _ = index.piece(hash);
            }
            let _ = (streams_of(&index), ended_of(&index), index.check());
            assert!(fs.bytes_read() < 200 * good.len() as u64);
        }
    }
}

fn restamp(file: &mut [u8], at: usize, bytes: usize) {
    let crc = source::checksum(&IDENTITY, at as u64, &file[at + 4..at + bytes]);
    file[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn headers() {
    let contents = contents(20, 6, 6);
    forge(&contents, 16, 130, |file| stamp(&mut file[..HEADER_BYTES]));
}

#[test]
fn table_blocks() {
    let contents = contents(21, 6, 6);
    let length = encode(&IDENTITY, &contents).unwrap().len();
    for at in [length - 4096, length - 8192] {
        forge(&contents, at, 320, |file| restamp(file, at, 4096));
    }
}

#[test]
fn stream_parts() {
    let contents = contents(22, 6, 0);
    let name_bytes = contents.streams[0].stream.to_string().len();
    let head_bytes = part::FIXED_BYTES + name_bytes;
    forge(&contents, 4096, head_bytes, |file| {
        restamp(file, 4096, head_bytes)
    });

    // The places, with their checksum in the head right too.
    let good = encode(&IDENTITY, &contents).unwrap();
    let places_bytes = bytes::u64_at(&good, 4096 + 24) as usize;
    let places_at = 4096 + head_bytes;
    forge(&contents, places_at, places_bytes, |file| {
        let places = &file[places_at..places_at + places_bytes];
        let crc = source::checksum(&IDENTITY, places_at as u64, places);
        file[4100..4104].copy_from_slice(&crc.to_le_bytes());
        restamp(file, 4096, head_bytes);
    });
}

#[test]
fn ended_runs() {
    let mut random = Random(23);
    let run = ended(&mut random, run(1));
    let names = run.run.to_string().len() + run.agent.as_ref().map_or(0, String::len);
    let length = ended::FIXED_BYTES + names;
    let contents = Contents {
        ended: vec![run],
        ..Contents::default()
    };
    forge(&contents, 4096, length, |file| restamp(file, 4096, length));
}
