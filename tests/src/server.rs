//! A child process under test: found by the line it prints, stopped by the signals that matter, gone with its handle.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// A running server that has said where it listens.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Server {
    /// Starts a program and waits for its `listening on http://…`.
    pub async fn start(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut command = Command::new(program);
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let stdout = BufReader::new(child.stdout.take().expect("a piped stdout")).lines();
        let mut server = Self { child, stdout, url: String::new() };
        server.url = server.line_after("listening on ").await;
        server
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for a line that begins with `prefix`, and gives the rest of it.
    pub async fn line_after(&mut self, prefix: &str) -> String {
        let found = async {
            while let Some(line) = self.stdout.next_line().await.expect("readable output") {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return rest.to_owned();
                }
            }
            panic!("the server ended without printing {prefix:?}");
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("the server did not print {prefix:?}"))
    }

    /// SIGKILL, and waits until the process is gone.
    pub async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().await.expect("a child to wait for");
    }

    /// SIGSTOP: the process stands still, which this waits for, and its sockets stay open.
    ///
    /// # Panics
    ///
    /// When it goes on.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let begun = Instant::now();
        while !self.stands_still() {
            assert!(begun.elapsed() < PATIENCE, "a stopped process goes on");
            std::thread::yield_now();
        }
    }

    /// Whether each of its threads does. Where there is no `/proc`, that is not known, and taken for granted.
    fn stands_still(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.id())) else { return true };
        threads.flatten().all(|thread| {
            // One that has ended meanwhile goes on no more.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
        })
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGUSR1: a request that stands at its failpoint goes on.
    pub fn release(&self) {
        self.signal(Signal::SIGUSR1);
    }

    fn signal(&self, signal: Signal) {
        kill(self.id(), signal).expect("a signal that can be sent");
    }

    fn id(&self) -> Pid {
        let id = self.child.id().expect("a running child");
        Pid::from_raw(id.try_into().expect("a process id"))
    }
}

/// Builds a program of the examples once and says where it is.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "idempotency-examples", "--bins", "--manifest-path"])
            .arg(manifest)
            .status()
            .expect("cargo starts");
        assert!(built.success(), "the examples do not build");
        // The test is in `deps`, beside whose folder the programs are.
        let test = std::env::current_exe().expect("the test's own path");
        test.parent().and_then(Path::parent).expect("a target folder").to_owned()
    });
    folder.join(name)
}

/// How long a server may take to say what it is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
