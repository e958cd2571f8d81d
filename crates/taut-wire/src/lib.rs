//! Wire formats.
#![no_std]
