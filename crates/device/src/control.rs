//! The control socket: a line of JSON for each command and for each answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sockets::control_path;
use crate::statistics::Status;

/// Longest line of a client.
const COMMAND_BYTES_MAX: u64 = 4096;
/// Longest answer.
const REPLY_BYTES_MAX: u64 = 1 << 20;
/// How long a client may take for a line.
const COMMAND_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take: a smaller memory is as long in coming as it takes to write the rest.
const REPLY_MAX: Duration = Duration::from_secs(600);

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// What the device holds and has done.
    Status,
    /// What is given is to be so from now on.
    Set {
        /// What pool, metadata and connections may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory_bytes: Option<u64>,
        /// How full the pool gets before blocks leave for the store, in percent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold_percent: Option<u64>,
    },
    /// The end of the server.
    Stop {
        /// Also while clients use the device.
        force: bool,
    },
}

/// What it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// What the device holds and has done.
    Status(Box<Status>),
    /// It was done.
    Done,
    /// It was not done: why.
    Error(String),
}

/// The command that a line is.
fn parse(line: &[u8]) -> Result<Command, String> {
    match serde_json::from_slice(line) {
        Ok(Command::Set { memory_bytes: None, threshold_percent: None }) => {
            Err("nothing to set: give memory_bytes or threshold_percent".to_owned())
        }
        command => command.map_err(|error| error.to_string()),
    }
}

/// Answers one client's commands, until it has no more or takes too long; whether it has had the
/// server stop, which is to end only then: a server that is gone has told nobody that it does as it
/// was asked.
pub(crate) fn answer_client(stream: &UnixStream, mut answer: impl FnMut(Command) -> Reply) -> bool {
    let is_set = stream.set_read_timeout(Some(COMMAND_MAX)).is_ok()
        && stream.set_write_timeout(Some(COMMAND_MAX)).is_ok();
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    if !is_set {
        return false;
    }
    loop {
        line.clear();
        let read = (&mut lines).take(COMMAND_BYTES_MAX).read_until(b'\n', &mut line);
        if read.is_err() || line.last() != Some(&b'\n') {
            return false;
        }
        let command = parse(&line);
        let reply = match command {
            Ok(command) => answer(command),
            Err(ref why) => Reply::Error(format!("not a command: {why}")),
        };
        let is_sent = send(stream, &reply).is_ok();
        if let (Ok(Command::Stop { .. }), Reply::Done) = (command, reply) {
            return true;
        }
        if !is_sent {
            return false;
        }
    }
}

/// Sends a line.
fn send(mut stream: &UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Has the server whose device is at `socket` do something.
///
/// # Errors
/// There is no server, or why it did not do it.
pub fn ask(socket: &Path, command: Command) -> Result<Reply, String> {
    let path = control_path(socket);
    let shown = path.display();
    let stream = UnixStream::connect(&path).map_err(|error| {
        format!("no device is served at {shown}: {error}: give the --socket of one that is")
    })?;
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    stream.set_read_timeout(Some(REPLY_MAX)).map_err(failed)?;
    send(&stream, &command).map_err(failed)?;
    let mut line = Vec::new();
    let mut lines = BufReader::new(&stream);
    (&mut lines).take(REPLY_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
    let reply = serde_json::from_slice(&line)
        .map_err(|error| format!("{shown}: not an answer: {error}"))?;
    if let (Command::Stop { .. }, Reply::Done) = (command, &reply) {
        // The socket closes with the server.
        let _ = lines.read(&mut [0]);
    }
    match reply {
        Reply::Error(why) => Err(why),
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lines_as_documented() {
        let table = [
            (r#"{"command":"status"}"#, Command::Status),
            (
                r#"{"command":"set","memory_bytes":8388608}"#,
                Command::Set { memory_bytes: Some(8 << 20), threshold_percent: None },
            ),
            (
                r#"{"command":"set","threshold_percent":60}"#,
                Command::Set { memory_bytes: None, threshold_percent: Some(60) },
            ),
            (r#"{"command":"stop","force":false}"#, Command::Stop { force: false }),
        ];
        for (line, command) in table {
            assert_eq!(serde_json::to_string(&command).expect("JSON"), line);
            assert_eq!(parse(line.as_bytes()).expect("a command"), command);
        }
        for line in ["", "{}", r#"{"command":"go"}"#, r#"{"command":"set"}"#, "[[[["] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn who_stops_the_server_is_told_before_it_ends() {
        for (reply, is_end) in [(Reply::Done, true), (Reply::Error("in use".to_owned()), false)] {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            client.write_all(b"{\"command\":\"stop\",\"force\":false}\n").expect("sent");
            client.shutdown(std::net::Shutdown::Write).expect("open");
            assert_eq!(answer_client(&server, |_| reply.clone()), is_end);
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).expect("told");
            assert_eq!(serde_json::from_str::<Reply>(&line).expect("a reply"), reply);
        }
    }

    #[test]
    fn lines_that_are_no_commands_are_answered_and_long_ones_end_it() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let serving = std::thread::spawn(move || {
            let mut commands = 0;
            let is_end = answer_client(&server, |_| {
                commands += 1;
                Reply::Done
            });
            assert!(!is_end);
            commands
        });
        let long = vec![b' '; 2 * COMMAND_BYTES_MAX as usize];
        client.write_all(b"nonsense\n{\"command\":\"status\"}\n").expect("sent");
        // The server may have closed by now.
        let _ = client.write_all(&long);
        let mut answers = String::new();
        let _ = client.read_to_string(&mut answers);
        let answers: Vec<&str> = answers.lines().collect();
        assert!(answers[0].contains("not a command"), "{answers:?}");
        assert_eq!(answers[1..], [r#""done""#]);
        assert_eq!(serving.join().expect("ended"), 1);
    }
}
