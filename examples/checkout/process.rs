//! The service is a process of its own, so that killing it is what it is: it keeps nothing but what is on its disk.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{Mutex, watch};

use crate::script::Kill;
use crate::service::STOPPED;
use crate::timeline::Timeline;

/// A service that was started.
pub(crate) struct Process {
    child: Mutex<Child>,
    url: String,
    listen: String,
    provider: String,
    database: PathBuf,
    stopped: watch::Receiver<bool>,
    timeline: Timeline,
}

impl Process {
    /// Starts one that waits to be killed.
    pub(crate) async fn start(
        provider: &str,
        database: &Path,
        kill: Kill,
        timeline: Timeline,
    ) -> Result<Self, Box<dyn Error>> {
        Self::spawn("127.0.0.1:0", provider, database, Some(kill), timeline).await
    }

    /// Starts it again, where it was and with what it had.
    pub(crate) async fn restart(self) -> Result<Self, Box<dyn Error>> {
        Self::spawn(&self.listen, &self.provider, &self.database, None, self.timeline).await
    }

    async fn spawn(
        listen: &str,
        provider: &str,
        database: &Path,
        stop: Option<Kill>,
        timeline: Timeline,
    ) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["service", "--listen", listen, "--provider", provider, "--database"]).arg(database);
        if let Some(stop) = stop.as_ref().and_then(Kill::to_possible_value) {
            command.args(["--stop", stop.get_name()]);
        }
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a service without an output")?).lines();
        let listen = lines.next_line().await?.ok_or("the service did not start")?;
        timeline.say("service", "is up");
        let (stops, stopped) = watch::channel(false);
        tokio::spawn(tell(lines, stops, timeline.clone()));
        let url = format!("http://{listen}");
        let (provider, database) = (provider.to_owned(), database.to_owned());
        Ok(Self { child: Mutex::new(child), url, listen, provider, database, stopped, timeline })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Waits until it waits to be killed.
    pub(crate) async fn stopped(&self) -> Result<(), Box<dyn Error>> {
        self.stopped.clone().wait_for(|stopped| *stopped).await?;
        Ok(())
    }

    /// SIGKILL, which nothing can catch.
    pub(crate) async fn kill(&self) -> io::Result<()> {
        self.child.lock().await.kill().await?;
        self.timeline.say("service", "is killed");
        Ok(())
    }
}

/// Tells what the process tells.
async fn tell(mut lines: Lines<BufReader<ChildStdout>>, stops: watch::Sender<bool>, timeline: Timeline) {
    while let Ok(Some(line)) = lines.next_line().await {
        if line == STOPPED {
            stops.send_replace(true);
        } else {
            timeline.say("service", &line);
        }
    }
}
