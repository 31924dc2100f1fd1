//! Cutting a text into the chunks of a message, and a very long one into several messages.
//!
//! Both walk the text once from its beginning, and decide each cut from what stands before it and the one cluster after it.
//! So a text that grows at its end keeps every cut but those of its last piece.

use unicode_segmentation::UnicodeSegmentation;

use crate::limits::CLUSTER_CHARS;

/// Cuts `text` into chunks of at most `limit` characters: at the best break near the limit (paragraph, line, sentence,
/// word), else between grapheme clusters. A cluster is not cut: one longer than the limit is one longer chunk, and only
/// one over [`crate::limits::CLUSTER_CHARS`] is cut between characters. Joining the chunks gives `text` back.
/// An empty text is one empty chunk. A `limit` of 0 is taken as 1.
#[must_use]
pub fn chunks(text: &str, limit: usize) -> Vec<&str> {
    if text.len() <= limit || text.chars().nth(limit).is_none() {
        return vec![text];
    }
    cut(text, limit, |_| 1)
}

/// Cuts `text` into pieces that are one message each: at most `max` bytes of encoded JSON
/// ([`encoded_len`]), at breaks as in [`chunks`]. A prefix that stays the same is cut the same way as long as the cut
/// lies well inside it, so that a streamed text does not move its finished pieces: when text is added at the end,
/// only the last piece changes.
#[must_use]
pub fn pieces(text: &str, max: usize) -> Vec<&str> {
    if encoded_len(text) <= max {
        return vec![text];
    }
    cut(text, max.saturating_sub(QUOTES), encoded_char)
}

/// Bytes of the quotes around a JSON string.
const QUOTES: usize = 2;

/// Bytes that `text` takes as a JSON string, quotes included.
#[must_use]
pub fn encoded_len(text: &str) -> usize {
    QUOTES + text.bytes().map(escaped).sum::<usize>()
}

/// Bytes that one byte of a string takes in JSON as `serde_json` writes it: what is not ASCII stays as it is.
const fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..=31 => 6,
        _ => 1,
    }
}

fn encoded_char(c: char) -> usize {
    u8::try_from(c).ok().filter(u8::is_ascii).map_or(c.len_utf8(), escaped)
}

/// How good a break is, from worse to better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Break {
    Cluster,
    Word,
    Sentence,
    Line,
    Paragraph,
}

/// The greedy walk: takes clusters while their `weight` fits into `limit`; then cuts at the best break of the second half of
/// what fitted. So no part of the text is walked more than a few times.
fn cut(text: &str, limit: usize, weight: impl Fn(char) -> usize) -> Vec<&str> {
    let limit = limit.max(1);
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (end, whole) = first(rest, limit, &weight);
        let (piece, after) = rest.split_at(end);
        if whole {
            out.push(piece);
            rest = after;
        } else {
            let done = cut_cluster(piece, limit, &weight, &mut out);
            rest = rest.split_at(done).1;
        }
    }
    out
}

/// Where the first piece of `text` ends, and whether it is one piece: `false` for a cluster that must be cut itself.
fn first(text: &str, limit: usize, weight: &impl Fn(char) -> usize) -> (usize, bool) {
    let mut used = 0;
    let mut best = (Break::Cluster, 0);
    let mut context = Context::default();
    for (start, cluster) in text.grapheme_indices(true) {
        used += cluster.chars().map(weight).sum::<usize>();
        if used > limit {
            return match (start, best) {
                (0, _) => (cluster.len(), cluster.chars().nth(CLUSTER_CHARS).is_none()),
                (_, (Break::Cluster, _)) => (start, true),
                (_, (_, end)) => (end, true),
            };
        }
        let kind = context.after(cluster);
        // The last of the best kind; breaks in the first half would make chunks that are too small.
        if kind > Break::Cluster && kind >= best.0 && used * 2 >= limit {
            best = (kind, start + cluster.len());
        }
    }
    (text.len(), true)
}

/// Cuts an endless cluster between characters. Its last piece is left to the next round, which may add to it.
/// Gives the bytes that were taken.
fn cut_cluster<'a>(
    cluster: &'a str,
    limit: usize,
    weight: &impl Fn(char) -> usize,
    out: &mut Vec<&'a str>,
) -> usize {
    let (mut taken, mut used) = (0, 0);
    for (at, c) in cluster.char_indices() {
        let size = weight(c);
        if at > taken && used + size > limit {
            out.extend(cluster.get(taken..at));
            (taken, used) = (at, 0);
        }
        used += size;
    }
    if taken == 0 {
        // Not reached, since the cluster is over the limit; but the walk must go on whatever comes.
        out.push(cluster);
        return cluster.len();
    }
    taken
}

/// What stands before a break.
#[derive(Default)]
struct Context {
    /// Line ends since the last character that shows.
    lines: u32,
    /// A sentence has ended, and at most closing marks and spaces came after.
    sentence: bool,
}

impl Context {
    /// Takes the next cluster, and tells how good a break after it is.
    fn after(&mut self, cluster: &str) -> Break {
        let Some(c) = cluster.chars().next_back() else { return Break::Cluster };
        match c {
            '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                self.lines += 1;
                if self.lines > 1 || c == '\u{2029}' { Break::Paragraph } else { Break::Line }
            }
            // Spaces that are there to keep two words together.
            '\u{a0}' | '\u{2007}' | '\u{202f}' => Break::Cluster,
            _ if c.is_whitespace() => {
                if self.sentence && self.lines == 0 {
                    Break::Sentence
                } else {
                    Break::Word
                }
            }
            _ => {
                self.lines = 0;
                match c {
                    '.' | '!' | '?' | '…' => self.sentence = true,
                    // These end a sentence without a space after them.
                    '。' | '！' | '？' => {
                        self.sentence = true;
                        return Break::Sentence;
                    }
                    ')' | ']' | '"' | '\'' | '»' | '”' | '’' | '*' | '_' | '`' => {}
                    _ => self.sentence = false,
                }
                Break::Cluster
            }
        }
    }
}
