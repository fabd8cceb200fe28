//! Ranks that greet each other by active messages and leave a word in each other's memory.
//!
//! ```text
//! cargo build --release -p isometry --example ranks
//! iso launch -n 4 -- target/release/examples/ranks
//! ```

use isometry::fabric::model::NodeId;
use isometry::fabric::{Config, Error, Fabric, Handlers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const GREET: u8 = 128;
const THANK: u8 = 129;

fn main() -> Result<(), Error> {
    let thanked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&thanked);
    let handlers = Handlers::new()
        .with(GREET, |call| {
            // A peer that is gone needs no thanks.
            let _ = call.reply(THANK, &[call.args()[0] + 1], &[]);
        })
        .with(THANK, move |_| _ = counted.fetch_add(1, Ordering::Relaxed));

    let mut config = Config::from_variables(|name| std::env::var(name).ok())?;
    config.segment_bytes = 4096;
    let fabric = Fabric::join(&config, handlers)?;
    let (me, size) = (fabric.rank(), fabric.size());

    for peer in (0..size).map(NodeId) {
        fabric.put_word(peer, 8 * u64::from(me.0), u64::from(me.0) + 1)?;
        fabric.request(peer, GREET, &[me.0], b"hello")?;
    }
    fabric.wait_until(None, || thanked.load(Ordering::Relaxed) == size)?;
    fabric.barrier()?;

    let words = (0..size).map(|from| fabric.get_word(me, 8 * u64::from(from)));
    let sum = words.sum::<Result<u64, _>>()?;
    println!("rank {} of {size}: {size} greetings answered, words add up to {sum}", me.0);
    fabric.barrier()
}
