//! Statements to come.
