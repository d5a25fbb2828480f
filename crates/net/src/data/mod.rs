//! The data that the networks train on.

pub mod corpus;
