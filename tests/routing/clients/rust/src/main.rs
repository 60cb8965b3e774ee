// Partitions that RabbitMQ's stream client for Rust chooses: a key a line in, in UTF-8, its partition a line out.
// Its strategy asks a broker for the partitions, so this calls what it calls: the same crate, seed and remainder.
use murmur3::murmur3_32;
use std::io::{BufRead, Cursor};

fn main() {
    let partitions: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    for key in std::io::stdin().lock().lines() {
        let hash = murmur3_32(&mut Cursor::new(key.unwrap()), 104729).unwrap();
        println!("{}", hash % partitions);
    }
}
