//! A server program that is gone when its handle is: also after a panic, in a static, and when the test is killed.
//!
//! 1. A shell, the keeper, has the server as its child and reads orders from its own standard input, whose other end the
//!    test's process holds. However that process ends, the kernel closes the pipe; the keeper then kills the server and
//!    removes its folder.
//! 2. The keeper is in a session of its own, so that a signal to the test's process group, as from a terminal, does not take
//!    it away before the server; nor does the one that the kernel sends to a group some of which stands still when the last
//!    of its session that was outside of it ends.
//! 3. What the server has forked is killed, paused and resumed with it. It is found while the server stands still, when it
//!    neither forks nor waits for those that end, so that none is missed and no number is another's.
//! 4. Nothing here belongs to a runtime: servers in a static serve tests that each have their own. Orders block for the
//!    milliseconds that they take.
//!
//! It does not find what those have forked in turn, nor anything where there is no `/proc`: that must see by itself that
//! its parent is gone.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A program in a temporary folder.
#[derive(Debug)]
pub struct Keeper {
    kept: Mutex<Kept>,
    folder: PathBuf,
}

#[derive(Debug)]
struct Kept {
    shell: Child,
    replies: BufReader<ChildStdout>,
    /// The server, until it is killed. The shell has not waited for it before that, so the number is not another's.
    server: Option<Pid>,
}

impl Keeper {
    /// Starts a program in the folder, which belongs to the keeper from here on.
    #[must_use]
    pub fn start(folder: TempDir, program: &str, arguments: &[impl AsRef<str>]) -> Self {
        let mut shell = Command::new("setsid")
            .args(["/bin/sh", "-c", ORDERS, "keeper"])
            .arg(folder.path())
            .arg(program)
            .args(arguments.iter().map(AsRef::as_ref))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("setsid, and a shell");
        let folder = folder.keep();
        let replies = BufReader::new(shell.stdout.take().expect("a piped stdout"));
        let keeper = Self { kept: Mutex::new(Kept { shell, replies, server: None }), folder };
        keeper.start_again();
        keeper
    }

    /// Starts the program with the same arguments in the same folder; one that still runs is killed first.
    pub fn start_again(&self) {
        self.kill();
        self.with(|kept| {
            let id = kept.order("start");
            kept.server = Some(Pid::from_raw(id.parse().expect("a process id")));
        });
    }

    /// SIGKILL, unless that has happened, and waits until the process and those that it has forked are gone.
    pub fn kill(&self) {
        self.with(|kept| {
            if kept.server.take().is_some() {
                kept.order("kill");
            }
        });
    }

    /// SIGSTOP: the process and those that it has forked stand still, which this waits for, and their sockets stay open.
    pub fn pause(&self) {
        let server = self.id();
        stop(server);
        for child in children(server) {
            stop(child);
        }
    }

    /// SIGCONT.
    pub fn resume(&self) {
        // In this order: one that goes on may wait for its children, whose numbers would then be others'.
        for process in self.processes().into_iter().rev() {
            signal(process, Signal::SIGCONT);
        }
    }

    /// The id of the process, and then of those that it has forked.
    ///
    /// # Panics
    ///
    /// When it was killed.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        let server = self.id();
        let mut processes = vec![server];
        processes.extend(children(server));
        processes
    }

    /// The id of the process.
    ///
    /// # Panics
    ///
    /// When it was killed.
    #[must_use]
    pub fn id(&self) -> Pid {
        self.with(|kept| kept.server.expect("the server was killed"))
    }

    /// Whether it has ended by itself. Where there is no `/proc`, that is never seen.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        state(self.id()) == Some('Z')
    }

    /// What it has written since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Where it runs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        // A test that has panicked still ends its servers.
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    fn order(&mut self, order: &str) -> String {
        let orders = self.shell.stdin.as_mut().expect("a piped stdin");
        writeln!(orders, "{order}").expect("a keeper that reads");
        let mut reply = String::new();
        self.replies.read_line(&mut reply).expect("a keeper that replies");
        reply.trim_end().to_owned()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Closes its standard input, and waits until the server and its folder are gone. One that fails in this has
        // nothing that could be done about it here.
        drop(self.shell.wait());
    }
}

/// Waits until a process stands still, or has ended.
fn stop(process: Pid) {
    signal(process, Signal::SIGSTOP);
    // The signal reaches a process that runs on another core a little later.
    let begun = Instant::now();
    while state(process).is_some_and(|state| !matches!(state, 'T' | 'Z')) {
        assert!(begun.elapsed() < Duration::from_secs(20), "a stopped process goes on");
        std::thread::yield_now();
    }
}

fn signal(process: Pid, signal: Signal) {
    kill(process, signal).expect("a signal that can be sent");
}

fn state(process: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which stands in parentheses and may have some in it.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Those that a process has forked and has not waited for; all of them, while it stands still.
fn children(of: Pid) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    children.split_whitespace().map(|id| Pid::from_raw(id.parse().expect("a process id"))).collect()
}

/// The keeper: its folder, then the program and its arguments.
const ORDERS: &str = r#"
folder=$1
shift
server=
# Waits until a process is in one of the states, or has no entry in /proc. Another program run here could end the wait for
# the server, so there is none.
await() {
    while read -r stat <"/proc/$1/stat"; do
        stat=${stat##*) }
        case $2 in *"${stat%% *}"*) return ;; esac
    done
}
stop() {
    [ -n "$server" ] || return
    kill -STOP "$server"
    await "$server" TZ
    children=
    read -r children <"/proc/$server/task/$server/children"
    for child in $children; do kill -KILL "$child"; done
    for child in $children; do await "$child" Z; done
    kill -KILL "$server"
    wait "$server"
    server=
}
while read -r order; do
    case $order in
    start)
        # Before the reply, so that who has it never reads of an earlier start.
        : >log
        exec "$@" </dev/null >>log 2>&1 &
        server=$!
        echo "$server"
        ;;
    kill)
        stop
        echo gone
        ;;
    esac
done
stop
cd /
rm -rf "$folder"
"#;
