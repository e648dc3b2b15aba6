//! The list of properties that every store keeps.
