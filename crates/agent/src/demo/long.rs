//! The text of `/long`.

/// Exactly `chars` characters (Unicode scalar values). Where there is room: numbered paragraphs with emoji of several
/// code points, a code block and a long URL; the rest is plain filler, so that nothing is cut in two at the end.
pub(super) fn long(chars: usize) -> String {
    let mut text = String::new();
    let mut left = chars;
    for number in 1.. {
        let part = part(number);
        let size = part.chars().count();
        if size > left {
            break;
        }
        text.push_str(&part);
        left -= size;
    }
    const FILLER: &str = "filler ";
    text.extend(FILLER.chars().cycle().take(left.saturating_sub(1)));
    if left > 0 {
        // The last character is seen: a cut would be noticed.
        text.push('.');
    }
    text
}

/// One paragraph, one code block, one URL; numbered, so that a lost or doubled piece is seen.
fn part(number: usize) -> String {
    let path = "a-long-path-that-no-line-can-hold/".repeat(8);
    format!(
        "Part {number}. A family 👨‍👩‍👧‍👦, a flag 🏳️‍🌈 of 🇷🇺 and 🇬🇧, a thumb 👍🏽, a key 7️⃣, an accent e\u{301}. \
         Русский текст, עברית, 日本語. A sentence follows a sentence, so that there is a good place to break.\n\n\
         ```rust\nfn part_{number}() -> usize {{\n    // code keeps its spaces\n    {number} * 2\n}}\n```\n\n\
         https://example.com/{path}?part={number}&q=%F0%9F%8E%89#end-{number}\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_exact() {
        let one = part(1).chars().count();
        for n in [1, 2, 7, 100, one - 1, one, one + 1, 2_000, 12_000, 199_999, 200_000] {
            let text = long(n);
            assert_eq!(text.chars().count(), n);
            assert!(n < one || text.contains("```\n\nhttps://example.com/"), "{n}");
            assert!(n < one || text.contains("👨‍👩‍👧‍👦"), "{n}");
        }
        assert!(one < 1_000, "a reply of a thousand characters shows everything");
    }
}
