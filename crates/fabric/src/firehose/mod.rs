//! Memory of others that is pinned only where it is used (GASNet's Firehose).

mod arena;
mod buckets;
mod hoses;
mod run;
#[cfg(test)]
mod tests;
