//! Networks for [`untuned`](https://docs.rs/untuned): so far the randomness and the data that they train on.

pub mod data;
pub mod random;
