//! What the fuzz targets share.

mod disk;
pub mod world;
