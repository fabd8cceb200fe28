//! Nodes whose messages overtake each other, against tables that know everything.

mod patterns;
mod world;
