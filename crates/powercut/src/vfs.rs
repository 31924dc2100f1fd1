//! The machine as an SQLite file layer, modelled on SQLite's own layer for Unix: a new -wal or journal has its
//! directory synced at its first sync, a delete syncs the directory when SQLite asks for it.
//!
//! Every function here is called by SQLite only, with the pointers that its documentation promises: `file` is memory of
//! `szOsFile` bytes that `open` filled, `vfs` is the structure that was registered, buffers have the given length. A
//! connection is used by one thread at a time; the state behind the connections is behind a mutex.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::{Path, PathBuf},
    ptr, slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use rusqlite::ffi;

use crate::machine::{Machine, Refused};

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A registered file layer on a [`Machine`]; unregistered when dropped (connections that are open go on).
pub struct Vfs {
    name: String,
    raw: *mut ffi::sqlite3_vfs,
}

/// What all connections of a layer share.
struct Shared {
    machine: Machine,
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    /// Lock levels of the database files, by file and connection.
    files: HashMap<usize, BTreeMap<u64, c_int>>,
    /// WAL indexes, by database file.
    shm: HashMap<usize, Shm>,
}

#[derive(Default)]
struct Shm {
    regions: Vec<Region>,
    /// Shared and exclusive lock bits, by connection.
    holders: BTreeMap<u64, (u32, u32)>,
}

/// A piece of a WAL index. SQLite itself orders the accesses to it.
struct Region {
    start: *mut u64,
    words: usize,
}

// SAFETY: the memory belongs to this value alone as far as Rust is concerned; only SQLite looks into it.
unsafe impl Send for Region {}

impl Region {
    fn new(bytes: usize) -> Self {
        let words = bytes.div_ceil(8);
        Self { start: Box::into_raw(vec![0u64; words].into_boxed_slice()).cast(), words }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` of a slice of this length, freed once.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.start, self.words)) });
    }
}

/// An open file.
struct Handle {
    shared: Arc<Shared>,
    number: u64,
    node: usize,
    path: PathBuf,
    /// The directory is synced with the next sync.
    new: bool,
    temporary: bool,
}

#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

impl Shared {
    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vfs {
    /// Registers a layer under a name of its own.
    ///
    /// # Panics
    /// When SQLite does not take it.
    #[must_use]
    pub fn register(machine: &Machine) -> Self {
        let name = format!("powercut-{}", NUMBERS.fetch_add(1, Ordering::Relaxed));
        let shared = Arc::new(Shared { machine: machine.clone(), locks: Mutex::default() });
        // Leaked on purpose, with the machine behind it: a connection may outlive the registration.
        let raw = Box::into_raw(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<File>() as c_int,
            mxPathname: 512,
            pNext: ptr::null_mut(),
            zName: CString::new(name.as_str()).unwrap_or_default().into_raw(),
            pAppData: Box::into_raw(Box::new(shared)).cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time_millis),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the structure and its name live for ever, its functions keep SQLite's contract.
        let done = unsafe { ffi::sqlite3_vfs_register(raw, 0) };
        assert_eq!(done, ffi::SQLITE_OK, "SQLite refused the file layer");
        Self { name, raw }
    }

    /// The name to open a database with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: registered above, and never freed.
        unsafe { ffi::sqlite3_vfs_unregister(self.raw) };
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `vfs` is one of ours.
unsafe fn shared<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Arc<Shared> {
    // SAFETY: see above; `register` put it there, and it is never freed.
    unsafe { &*(*vfs).pAppData.cast::<Arc<Shared>>() }
}

/// # Safety
/// `file` was filled by `open` and not closed.
unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Handle {
    // SAFETY: see above; SQLite uses a file from one thread at a time.
    unsafe { &mut *(*file.cast::<File>()).handle }
}

/// # Safety
/// `name` is a C string.
unsafe fn path(name: *const c_char) -> PathBuf {
    // SAFETY: see above.
    PathBuf::from(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

const fn code(done: Result<(), Refused>) -> c_int {
    match done {
        Ok(()) => ffi::SQLITE_OK,
        Err(Refused::Missing) => ffi::SQLITE_CANTOPEN,
        Err(Refused::Full) => ffi::SQLITE_FULL,
        Err(Refused::SyncFailed) => ffi::SQLITE_IOERR_FSYNC,
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the contract of xOpen.
    unsafe {
        (*file).pMethods = ptr::null();
        let shared = Arc::clone(shared(vfs));
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let temporary = name.is_null();
        let path = if temporary { PathBuf::from(format!("/temp/{number}")) } else { path(name) };
        let existed = shared.machine.exists(&path);
        let node = match shared.machine.open(&path, flags & ffi::SQLITE_OPEN_CREATE != 0) {
            Ok(node) => node,
            Err(refused) => return code(Err(refused)),
        };
        let journal = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL;
        let new = !existed && flags & journal != 0;
        let temporary = temporary || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        (*file.cast::<File>()).handle =
            Box::into_raw(Box::new(Handle { shared, number, node, path, new, temporary }));
        if !out_flags.is_null() {
            *out_flags = flags;
        }
        (*file).pMethods = &raw const METHODS;
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: the contract of xDelete.
    let (shared, path) = unsafe { (shared(vfs), path(name)) };
    if shared.machine.remove(&path).is_err() {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    }
    if sync_dir != 0 {
        shared.machine.sync_dir(directory(&path));
    }
    ffi::SQLITE_OK
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: the contract of xAccess.
    unsafe {
        let machine = &shared(vfs).machine;
        // As on Unix, an empty file does not count as existing.
        let there = machine
            .open(&path(name), false)
            .is_ok_and(|node| flags != ffi::SQLITE_ACCESS_EXISTS || machine.len(node) > 0);
        *result = c_int::from(there);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the contract of xFullPathname: `out` has `room` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > usize::try_from(room).unwrap_or(0) {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: the contract of xRandomness: `out` has `len` bytes.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), usize::try_from(len).unwrap_or(0)) };
    // Salts of the -wal must differ from file to file, and no more.
    for byte in out.iter_mut() {
        *byte = (NUMBERS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    }
    len
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::yield_now();
    microseconds
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: the contract of xCurrentTime.
    unsafe { *out = 2_461_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_millis(_vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: the contract of xCurrentTimeInt64.
    unsafe { *out = 2_461_000 * 86_400_000 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the handle, and SQLite closes a file once.
    let handle = unsafe { Box::from_raw((*file.cast::<File>()).handle) };
    if let Some(levels) = handle.shared.locks().files.get_mut(&handle.node) {
        levels.remove(&handle.number);
    }
    if handle.temporary {
        let _ = handle.shared.machine.remove(&handle.path);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: the contract of xRead: `out` has `len` bytes.
    let (handle, out) = unsafe {
        (handle(file), slice::from_raw_parts_mut(out.cast::<u8>(), usize::try_from(len).unwrap_or(0)))
    };
    let bytes = handle.shared.machine.read(handle.node, usize::try_from(at).unwrap_or(usize::MAX), out.len());
    let (full, rest) = out.split_at_mut(bytes.len());
    full.copy_from_slice(&bytes);
    rest.fill(0);
    if rest.is_empty() { ffi::SQLITE_OK } else { ffi::SQLITE_IOERR_SHORT_READ }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, data: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: the contract of xWrite: `data` has `len` bytes.
    let (handle, data) = unsafe {
        (handle(file), slice::from_raw_parts(data.cast::<u8>(), usize::try_from(len).unwrap_or(0)))
    };
    code(handle.shared.machine.write(handle.node, usize::try_from(at).unwrap_or(0), data))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.shared.machine.set_len(handle.node, usize::try_from(size).unwrap_or(0));
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    if let Err(refused) = handle.shared.machine.sync(handle.node, &handle.path) {
        return code(Err(refused));
    }
    if std::mem::take(&mut handle.new) {
        handle.shared.machine.sync_dir(directory(&handle.path));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: the contract of xFileSize.
    unsafe {
        let handle = handle(file);
        *out = handle.shared.machine.len(handle.node) as i64;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    let mut locks = handle.shared.locks();
    let levels = locks.files.entry(handle.node).or_default();
    let others = levels.iter().filter(|(n, _)| **n != handle.number).map(|(_, l)| *l).max().unwrap_or(0);
    let (granted, busy) = match level {
        ffi::SQLITE_LOCK_SHARED => (level, others >= ffi::SQLITE_LOCK_PENDING),
        ffi::SQLITE_LOCK_RESERVED => (level, others >= ffi::SQLITE_LOCK_RESERVED),
        // Readers are let finish, and no new ones in.
        _ if others == ffi::SQLITE_LOCK_SHARED => {
            levels.insert(handle.number, ffi::SQLITE_LOCK_PENDING);
            (level, true)
        }
        _ => (level, others > ffi::SQLITE_LOCK_SHARED),
    };
    if busy {
        return ffi::SQLITE_BUSY;
    }
    let own = levels.entry(handle.number).or_default();
    *own = granted.max(*own);
    ffi::SQLITE_OK
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.shared.locks().files.entry(handle.node).or_default().insert(handle.number, level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the contract of xCheckReservedLock.
    unsafe {
        let handle = handle(file);
        let locks = handle.shared.locks();
        let reserved = locks
            .files
            .get(&handle.node)
            .is_some_and(|levels| levels.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED));
        *out = c_int::from(reserved);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    // What SQLite's own layer for Unix says: a torn write harms no byte outside its range.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the contract of xShmMap.
    unsafe {
        let handle = handle(file);
        let mut locks = handle.shared.locks();
        let shm = locks.shm.entry(handle.node).or_default();
        shm.holders.entry(handle.number).or_default();
        let page = usize::try_from(page).unwrap_or(0);
        while extend != 0 && shm.regions.len() <= page {
            shm.regions.push(Region::new(usize::try_from(size).unwrap_or(0)));
        }
        *out = shm.regions.get(page).map_or(ptr::null_mut(), |region| region.start.cast());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    let mut locks = handle.shared.locks();
    let holders = &mut locks.shm.entry(handle.node).or_default().holders;
    let mask = ((1u32 << n) - 1) << offset;
    let (mut shared, mut exclusive) = (0, 0);
    for (_, held) in holders.iter().filter(|(number, _)| **number != handle.number) {
        shared |= held.0;
        exclusive |= held.1;
    }
    let own = holders.entry(handle.number).or_default();
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        *own = (own.0 & !mask, own.1 & !mask);
    } else if flags & ffi::SQLITE_SHM_SHARED != 0 {
        if exclusive & mask != 0 {
            return ffi::SQLITE_BUSY;
        }
        own.0 |= mask;
    } else {
        if (shared | exclusive) & mask != 0 {
            return ffi::SQLITE_BUSY;
        }
        own.1 |= mask;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    let mut locks = handle.shared.locks();
    if let Some(shm) = locks.shm.get_mut(&handle.node) {
        shm.holders.remove(&handle.number);
        // The first connection of a new round makes the index anew, as after a restart.
        if shm.holders.is_empty() {
            locks.shm.remove(&handle.node);
        }
    }
    ffi::SQLITE_OK
}
