//! Files that mmb appends to, overwrites, or whose content it trusts.

use crate::directory::Directory;
use crate::error::FileError;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// How often an open is tried again if other processes create and remove the file meanwhile.
const ATTEMPTS: usize = 16;

/// Returns whether a name stands for an open descriptor of this process, such as `-` or `/dev/stdout`.
pub fn is_own_stream(name: &str) -> bool {
    matches!(name, "-" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr")
        || ["/dev/fd/", "/proc/self/fd/"].iter().any(|folder| name.starts_with(folder))
}

/// Opens a file to append to it, and creates it with this mode if it does not exist. A pipe without a reader
/// is an error.
///
/// # Errors
/// It is a symbolic link; others may write to its directory and it belongs to another user or has a second
/// name; the system refused.
pub fn open_to_append(path: &Path, mode: u32) -> Result<File, FileError> {
    let access = OFlags::WRONLY | OFlags::APPEND;
    if path.to_str().is_some_and(is_own_stream) && path != Path::new("-") {
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        return Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into());
    }
    let (directory, name) = Directory::of_file(path)?;
    for _ in 0..ATTEMPTS {
        match directory.create_file(&name, access, mode) {
            Err(Errno::EXIST) => {}
            created => return Ok(created?),
        }
        let file = match directory.open_file(&name, access) {
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP) => return Err(FileError::Link(path.to_owned())),
            opened => opened?,
        };
        directory.refuse_foreign(&name, &file)?;
        return Ok(file);
    }
    Err(Errno::AGAIN.into())
}

/// Opens a file to overwrite it, without truncating it, and creates it if it does not exist. The file may be a
/// pipe or a device, on which this call may wait. Links of trusted users are followed.
///
/// # Errors
/// Others may write to the directory of the file, and the file belongs to another user or has a second name; a link
/// of another user is on the path; or the system refused.
pub fn open_output(path: &Path) -> Result<File, FileError> {
    if path.to_str().is_some_and(is_own_stream) && path != Path::new("-") {
        return Ok(File::options().write(true).open(path)?);
    }
    let (directory, name) = Directory::behind_links(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &name, flags, Mode::from_raw_mode(0o666))?;
    directory.refuse_foreign(&name, &file)?;
    Ok(file.into())
}

/// Opens a regular file whose content mmb trusts: a secret, or a state. Links of trusted users are followed:
/// mounted secrets are links.
///
/// # Errors
/// The file is not regular; it belongs to another user, or has a second name, in a directory where others may
/// write; a link of another user is on the path; or the system refused.
pub fn open_trusted(path: &Path) -> Result<File, FileError> {
    let (directory, name) = Directory::behind_links(path)?;
    let file = match directory.open_file(&name, OFlags::RDONLY) {
        Err(Errno::LOOP) => return Err(FileError::Link(path.to_owned())),
        opened => opened?,
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(FileError::Special(path.to_owned()));
    }
    directory.refuse_foreign(&name, &file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    /// The user `nobody`.
    const OTHER: u32 = 65_534;

    fn folder(mode: u32) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("sets");
        folder
    }

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn a_file_is_created_with_its_mode_and_appended_to() {
        let folder = folder(0o1777);
        let path = folder.path().join("log");
        for _ in 0..2 {
            open_to_append(&path, 0o640).expect("opened").write_all(b"x").expect("written");
        }
        assert_eq!(fs::read(&path).expect("reads"), b"xx");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777 & !0o640, 0);
    }

    #[test]
    fn no_link_is_appended_to() {
        let folder = folder(0o700);
        let (victim, link) = (folder.path().join("victim"), folder.path().join("log"));
        fs::write(&victim, "precious").expect("writes");
        for target in [victim.clone(), folder.path().join("new")] {
            symlink(target, &link).expect("links");
            let error = open_to_append(&link, 0o640).expect_err("a link");
            assert!(matches!(error, FileError::Link(_)), "{error}");
            fs::remove_file(&link).expect("removes");
        }
        assert_eq!(fs::read(&victim).expect("reads"), b"precious");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_second_name_is_refused_where_others_write_and_nowhere_else() {
        let folder = folder(0o777);
        let (victim, path) = (folder.path().join("victim"), folder.path().join("log"));
        fs::write(&victim, "precious").expect("writes");
        fs::hard_link(&victim, &path).expect("links");
        for opened in [open_to_append(&path, 0o640), open_output(&path)] {
            let error = opened.expect_err("a second name");
            assert!(matches!(error, FileError::SecondName(_)), "{error}");
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("sets");
        open_to_append(&path, 0o640).expect("only we could link it");
        open_output(&path).expect("only we could link it");
    }

    #[test]
    fn a_file_of_another_user_is_refused_where_others_write() {
        if !is_root() {
            return;
        }
        let folder = folder(0o755);
        let path = folder.path().join("log");
        fs::write(&path, "theirs").expect("writes");
        std::os::unix::fs::chown(&path, Some(OTHER), None).expect("chowns");
        open_to_append(&path, 0o640).expect("root has put it there");
        open_trusted(&path).expect("root has put it there");
        open_output(&path).expect("root has put it there");
        for (owner, mode) in [(None, 0o777), (Some(OTHER), 0o755)] {
            std::os::unix::fs::chown(folder.path(), owner, None).expect("chowns");
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("sets");
            for opened in [open_to_append(&path, 0o640), open_trusted(&path), open_output(&path)] {
                let error = opened.expect_err("theirs");
                assert!(matches!(error, FileError::ForeignFile(_, OTHER)), "{error}");
            }
        }
        assert_eq!(fs::read(&path).expect("reads"), b"theirs");
    }

    #[test]
    fn a_pipe_without_a_reader_does_not_wait() {
        let folder = folder(0o700);
        let path = folder.path().join("log");
        rustix::fs::mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).expect("a pipe");
        assert!(open_to_append(&path, 0o640).is_err());
        assert!(matches!(open_trusted(&path), Err(FileError::Special(_))));
    }

    #[test]
    fn what_is_believed_may_lie_behind_our_own_links_only() {
        let folder = folder(0o700);
        let (target, link) = (folder.path().join("..data"), folder.path().join("token"));
        fs::create_dir(&target).expect("made");
        fs::write(target.join("token"), "secret").expect("writes");
        symlink("..data/token", &link).expect("links");
        let mut text = String::new();
        open_trusted(&link).expect("opens").read_to_string(&mut text).expect("reads");
        assert_eq!(text, "secret");
        if is_root() {
            std::os::unix::fs::lchown(&link, Some(OTHER), None).expect("chowns");
            assert!(matches!(open_trusted(&link), Err(FileError::ForeignLink(_, OTHER))));
            assert!(matches!(open_output(&link), Err(FileError::ForeignLink(_, OTHER))));
        }
    }

    #[test]
    fn an_output_is_created_or_overwritten_through_our_own_links() {
        let folder = folder(0o700);
        let (path, link) = (folder.path().join("out"), folder.path().join("link"));
        symlink("out", &link).expect("links");
        for text in ["first", "second"] {
            open_output(&link).expect("opens").write_all(text.as_bytes()).expect("writes");
            assert_eq!(fs::read_to_string(&path).expect("reads"), text);
        }
        open_output(Path::new("/dev/null")).expect("a device");
    }
}
