//! What is printed. On a terminal a streamed reply grows in place and an edit redraws its lines; otherwise each message is
//! printed once, when it is final. Pure: every call returns the text to write.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
};

use client::core::Bubble;
use unicode_width::UnicodeWidthChar;

/// So many messages are remembered for later edits.
const REMEMBERED: usize = 256;
/// Before a reply that goes on below something else.
const GOES_ON: &str = "… ";
/// Before a message that was changed after it was printed.
const CHANGED: &str = "✎ ";

#[derive(Debug, Default)]
struct Shown {
    /// What was printed of it, as printed.
    text: String,
    last: bool,
}

/// The reply that is growing at the end of the screen.
#[derive(Debug)]
struct Live {
    id: String,
    /// Where the part that stands here begins in its text.
    from: usize,
    /// What stands before that part.
    lead: &'static str,
}

/// The screen, or a pipe.
#[derive(Debug)]
pub(super) struct Screen {
    /// Columns and rows; `None`: no terminal.
    size: Option<(usize, usize)>,
    shown: HashMap<String, Shown>,
    order: VecDeque<String>,
    live: Option<Live>,
}

impl Screen {
    pub(super) fn new(size: Option<(usize, usize)>) -> Self {
        Self { size, shown: HashMap::new(), order: VecDeque::new(), live: None }
    }

    pub(super) fn resize(&mut self, size: Option<(usize, usize)>) {
        if self.size.is_some() && size.is_some() {
            self.size = size;
        }
    }

    /// A line of its own, below everything.
    pub(super) fn line(&mut self, text: &str) -> String {
        let mut out = self.leave();
        out.push_str(text);
        out.push('\n');
        out
    }

    /// The person has ended a line: the cursor is at the beginning of an empty one.
    pub(super) fn typed(&mut self) {
        self.live = None;
    }

    /// The end of everything: what is not final and was not printed is printed now.
    pub(super) fn end(&mut self) -> String {
        let mut out = self.leave();
        if self.size.is_none() {
            for id in &self.order {
                if let Some(shown) = self.shown.get_mut(id).filter(|s| !s.last && !s.text.is_empty()) {
                    let _ = writeln!(out, "{} …", shown.text);
                    shown.last = true;
                }
            }
        }
        out
    }

    /// A message, or more of it.
    pub(super) fn bubble(&mut self, bubble: &Bubble) -> String {
        let text = clean(&bubble.text);
        if !self.shown.contains_key(&bubble.id) {
            self.remember(&bubble.id);
        }
        match self.size {
            None => self.pipe(&bubble.id, text, bubble.last),
            Some(size) => self.terminal(&bubble.id, text, bubble.last, size),
        }
    }

    fn pipe(&mut self, id: &str, text: String, last: bool) -> String {
        let shown = self.shown.entry(id.to_owned()).or_default();
        let out = match (last, shown.last) {
            (true, false) => format!("{text}\n"),
            (true, true) if shown.text != text => format!("{CHANGED}{text}\n"),
            _ => String::new(),
        };
        // A message that is being replayed after it was printed keeps what was printed.
        if last || !shown.last {
            *shown = Shown { text, last: last || shown.last };
        }
        out
    }

    fn terminal(&mut self, id: &str, text: String, last: bool, size: (usize, usize)) -> String {
        let mut out = String::new();
        let shown = self.shown.entry(id.to_owned()).or_default();
        let was_last = shown.last;
        if was_last && (shown.text == text || !last) {
            return out;
        }
        let before = std::mem::replace(shown, Shown { text: text.clone(), last }).text;
        let same = common(&before, &text);
        let live = self.live.take_if(|live| live.id == id);
        match live {
            Some(live) if same >= live.from => {
                out.push_str(&redraw(&before, &text, same, &live, size));
                self.live = Some(live);
            }
            Some(_) => {
                out.push('\n');
                out.push_str(&self.begin(id, &text, 0, CHANGED));
            }
            None if before.is_empty() => {
                out.push_str(&self.leave());
                out.push_str(&self.begin(id, &text, 0, ""));
            }
            None if same < before.len() => {
                out.push_str(&self.leave());
                out.push_str(&self.begin(id, &text, 0, CHANGED));
            }
            // It goes on below what came in between.
            None if text.len() > before.len() => {
                out.push_str(&self.leave());
                out.push_str(&self.begin(id, &text, before.len(), GOES_ON));
            }
            None => {}
        }
        if last && self.live.as_ref().is_some_and(|live| live.id == id) {
            out.push_str(&self.leave());
        }
        out
    }

    fn begin(&mut self, id: &str, text: &str, from: usize, lead: &'static str) -> String {
        self.live = Some(Live { id: id.to_owned(), from, lead });
        format!("{lead}{}", text.get(from..).unwrap_or_default())
    }

    /// Ends the line of a growing reply.
    fn leave(&mut self) -> String {
        if self.live.take().is_some() { "\n".into() } else { String::new() }
    }

    fn remember(&mut self, id: &str) {
        self.order.push_back(id.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.shown.remove(&oldest);
        }
    }
}

/// Turns what stands on the screen into the new text: what they have in common up to `same` stays.
fn redraw(before: &str, text: &str, same: usize, live: &Live, (columns, rows): (usize, usize)) -> String {
    if same == before.len() {
        return text.get(same..).unwrap_or_default().to_owned();
    }
    let segment = before.get(live.from..same).unwrap_or_default();
    let (from, lead) = match segment.rfind('\n') {
        Some(at) => (live.from + at + 1, ""),
        None => (live.from, live.lead),
    };
    let old = format!("{lead}{}", before.get(from..).unwrap_or_default());
    let new = format!("{lead}{}", text.get(from..).unwrap_or_default());
    let height = height(&old, columns);
    if height > rows.max(1) {
        // Its beginning has scrolled away: the whole again.
        return format!("\n{CHANGED}{}", text.get(live.from..).unwrap_or_default());
    }
    let mut out = "\r".to_owned();
    if height > 1 {
        let _ = write!(out, "\x1b[{}A", height - 1);
    }
    let _ = write!(out, "\x1b[J{new}");
    out
}

/// Rows that a text takes.
fn height(text: &str, columns: usize) -> usize {
    let columns = columns.max(2);
    let mut rows = 1;
    let mut column = 0;
    for c in text.chars() {
        if c == '\n' {
            rows += 1;
            column = 0;
            continue;
        }
        let width = c.width().unwrap_or(0);
        // The cursor stays behind the last column until one more is to be written.
        if column + width > columns {
            rows += 1;
            column = 0;
        }
        column += width;
    }
    rows
}

/// Length of the common beginning, at a character's border.
fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum()
}

/// Text that cannot steer the terminal: control characters but line breaks are replaced.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\t' => out.push_str("    "),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A command as it is: what cannot be seen, or changes the order of what is seen, is written as an escape.
pub(super) fn exact(command: &str) -> String {
    let hidden = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    command.chars().fold(String::with_capacity(command.len()), |mut out, c| {
        if hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bubble(id: &str, text: &str, last: bool) -> Bubble {
        Bubble { id: id.into(), text: text.into(), last, redraw: false, reply_to: None }
    }

    #[test]
    fn a_pipe_gets_each_message_once() {
        let mut pipe = Screen::new(None);
        assert_eq!(pipe.bubble(&bubble("a", "one", false)), "");
        assert_eq!(pipe.bubble(&bubble("a", "one two", true)), "one two\n");
        // A replay in chunks prints nothing, a change does.
        assert_eq!(pipe.bubble(&bubble("a", "one", false)), "");
        assert_eq!(pipe.bubble(&bubble("a", "one two", true)), "");
        assert_eq!(pipe.bubble(&bubble("a", "three", true)), "✎ three\n");
        assert_eq!(pipe.bubble(&bubble("b", "half", false)), "");
        assert_eq!(pipe.end(), "half …\n");
    }

    #[test]
    fn a_reply_grows_in_place() {
        let mut screen = Screen::new(Some((10, 5)));
        assert_eq!(screen.bubble(&bubble("a", "one", false)), "one");
        assert_eq!(screen.bubble(&bubble("a", "one two", false)), " two");
        assert_eq!(screen.bubble(&bubble("a", "one two", true)), "\n");
        assert_eq!(screen.line("note"), "note\n");
        assert_eq!(screen.bubble(&bubble("a", "one", false)), "", "a replay");
        assert_eq!(screen.bubble(&bubble("a", "other", true)), "✎ other\n");
    }

    #[test]
    fn an_edit_redraws_its_rows() {
        let mut screen = Screen::new(Some((10, 5)));
        screen.bubble(&bubble("a", "first\n123456789012345 x", false));
        assert_eq!(
            screen.bubble(&bubble("a", "first\n123456789012345 y", false)),
            "\r\x1b[1A\x1b[J123456789012345 y"
        );
        assert_eq!(screen.bubble(&bubble("a", "z", true)), "\r\x1b[2A\x1b[Jz\n");
        // What has scrolled away is printed again.
        screen.bubble(&bubble("b", "1\n2\n3\n4\n5\n6\n7", false));
        assert_eq!(screen.bubble(&bubble("b", "new", true)), "\n✎ new\n");
    }

    #[test]
    fn what_comes_in_between_does_not_break_a_reply() {
        let mut screen = Screen::new(Some((80, 24)));
        assert_eq!(screen.bubble(&bubble("a", "one", false)), "one");
        assert_eq!(screen.line("[note]"), "\n[note]\n");
        assert_eq!(screen.bubble(&bubble("a", "one two", false)), "…  two");
        assert_eq!(screen.bubble(&bubble("a", "one twos", false)), "s");
        assert_eq!(screen.bubble(&bubble("a", "one twox", false)), "\r\x1b[J…  twox");
        screen.typed();
        assert_eq!(screen.bubble(&bubble("a", "one twox", true)), "");
        assert_eq!(screen.bubble(&bubble("c", "c", false)), "c");
        assert_eq!(screen.bubble(&bubble("d", "d", true)), "\nd\n");
        assert_eq!(screen.bubble(&bubble("c", "c", true)), "");
    }

    #[test]
    fn wide_characters_and_the_last_column() {
        assert_eq!(height("1234567890", 10), 1);
        assert_eq!(height("12345678901", 10), 2);
        assert_eq!(height("漢字漢字漢", 10), 1);
        assert_eq!(height("1漢字漢字漢", 10), 2);
        assert_eq!(height("\n\n", 10), 3);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\r\nc\td\u{9b}"), "a\u{fffd}[2Jb\nc    d\u{fffd}");
        assert_eq!(exact("rm \u{202e}x\x1b\ny"), "rm \\u{202e}x\\u{1b}\ny");
    }
}
