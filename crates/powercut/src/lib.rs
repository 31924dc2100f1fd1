//! Test only: a disk that loses power.
