//! Programs that refuse to run as root: they run as the user that Debian's packages make for them.
//!
//! Where the tests do not run as root, the programs run as who runs the tests.

use std::os::unix::fs::chown;
use std::path::Path;

use nix::unistd::{Uid, User};
use tempfile::TempDir;

use crate::keeper::Keeper;
use crate::patience::Patience;

/// A folder that the programs may read and write, and nobody else.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    give(folder.path());
    folder
}

/// Writes a file that the programs may read.
pub(super) fn write(folder: &TempDir, name: &str, content: &str) {
    let file = folder.path().join(name);
    std::fs::write(&file, content).expect("a writable folder");
    give(&file);
}

/// Starts a program, which speaks English.
pub(super) fn start(folder: TempDir, program: &str, arguments: &[String]) -> Keeper {
    let mut command = vec!["LC_ALL=C".to_owned()];
    if let Some(user) = user() {
        // Each of these becomes the next, so that the process that is kept is the program's.
        let (uid, gid) = (user.uid, user.gid);
        command.extend(["setpriv".into(), format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()]);
    }
    command.push(program.to_owned());
    command.extend_from_slice(arguments);
    Keeper::start(folder, "env", &command)
}

/// Waits until a program says that it is ready, or that another has its port, which is `false`. That another answers on the
/// port does not count.
///
/// # Panics
///
/// When it ends before that, or takes too long.
pub(super) async fn began(keeper: &Keeper, program: &str, ready: &str) -> bool {
    let patience = Patience::new();
    loop {
        // In this order: what it said before its end is in the log.
        let has_ended = keeper.has_ended();
        let log = keeper.log();
        if log.contains(REFUSED) {
            return false;
        }
        if log.contains(ready) {
            return true;
        }
        assert!(!has_ended, "{program} does not start:\n{log}");
        assert!(patience.lasts().await, "{program} does not say {ready:?}:\n{log}");
    }
}

fn give(path: &Path) {
    if let Some(user) = user() {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root may give files away");
    }
}

/// As whom they run; `None` for who runs the tests.
fn user() -> Option<User> {
    let user = || User::from_name(NAME).expect("a list of users").expect("the user of Debian's packages");
    Uid::effective().is_root().then(user)
}

const NAME: &str = "postgres";
/// What both programs say when another has their port.
const REFUSED: &str = "Address already in use";
/// How many ports one may be refused that were free a moment ago.
pub(super) const ATTEMPTS: u32 = 20;
