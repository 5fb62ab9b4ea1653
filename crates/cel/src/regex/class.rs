//! Sets of characters: ranges of code points, the names of Unicode's sets that Go knows, and
//! what is the same but for its case. The tables are cut down to the characters of Unicode
//! 15.0, which is what Go 1.25 and 1.26 have.

use std::sync::{Arc, LazyLock, OnceLock};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

use super::{Refusal, Room};

/// First to last code point, in order and apart from each other.
pub(super) type Class = Arc<[(u32, u32)]>;

const LAST: u32 = 0x10_FFFF;

/// Go's names of categories. `Cn` is what isn't assigned, `Cs` no text can have.
const CATEGORIES: &[&str] = &[
    "C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "LC", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me",
    "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk",
    "Sm", "So", "Z", "Zl", "Zp", "Zs",
];

/// Go's names of scripts. Those of several words are missing: Go looks names up without
/// their underscores, and so finds none of its own that has one.
const SCRIPTS: &[&str] = &[
    "Adlam",
    "Ahom",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Carian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Chorasmian",
    "Common",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Dogra",
    "Duployan",
    "Elbasan",
    "Elymaic",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hatran",
    "Hebrew",
    "Hiragana",
    "Inherited",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "Kawi",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Latin",
    "Lepcha",
    "Limbu",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Makasar",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "Medefaidrin",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "Nandinagari",
    "Newa",
    "Nko",
    "Nushu",
    "Ogham",
    "Oriya",
    "Osage",
    "Osmanya",
    "Palmyrene",
    "Phoenician",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "Sinhala",
    "Sogdian",
    "Soyombo",
    "Sundanese",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Takri",
    "Tamil",
    "Tangsa",
    "Tangut",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Toto",
    "Ugaritic",
    "Vai",
    "Vithkuqi",
    "Wancho",
    "Yezidi",
    "Yi",
];

/// The long names of categories, as they are looked up.
const ALIASES: &[(&str, &str)] = &[
    ("Casedletter", "LC"),
    ("Closepunctuation", "Pe"),
    ("Combiningmark", "M"),
    ("Connectorpunctuation", "Pc"),
    ("Control", "Cc"),
    ("Currencysymbol", "Sc"),
    ("Dashpunctuation", "Pd"),
    ("Decimalnumber", "Nd"),
    ("Enclosingmark", "Me"),
    ("Finalpunctuation", "Pf"),
    ("Format", "Cf"),
    ("Initialpunctuation", "Pi"),
    ("Letter", "L"),
    ("Letternumber", "Nl"),
    ("Lineseparator", "Zl"),
    ("Lowercaseletter", "Ll"),
    ("Mark", "M"),
    ("Mathsymbol", "Sm"),
    ("Modifierletter", "Lm"),
    ("Modifiersymbol", "Sk"),
    ("Nonspacingmark", "Mn"),
    ("Number", "N"),
    ("Openpunctuation", "Ps"),
    ("Other", "C"),
    ("Otherletter", "Lo"),
    ("Othernumber", "No"),
    ("Otherpunctuation", "Po"),
    ("Othersymbol", "So"),
    ("Paragraphseparator", "Zp"),
    ("Privateuse", "Co"),
    ("Punctuation", "P"),
    ("Separator", "Z"),
    ("Spaceseparator", "Zs"),
    ("Spacingmark", "Mc"),
    ("Surrogate", "Cs"),
    ("Symbol", "S"),
    ("Titlecaseletter", "Lt"),
    ("Unassigned", "Cn"),
    ("Uppercaseletter", "Lu"),
    ("Cntrl", "Cc"),
    ("Digit", "Nd"),
    ("Punct", "P"),
];

const TABLES: usize = CATEGORIES.len() + SCRIPTS.len();
/// Read when first asked for and kept for all patterns: a table has up to 700 ranges.
static KNOWN: [OnceLock<Class>; TABLES] = [const { OnceLock::new() }; TABLES];
/// The same with all that differs from a member in case.
static FOLDED: [OnceLock<Class>; TABLES] = [const { OnceLock::new() }; TABLES];

/// The set of `\p{name}`, where wanted with all that differs from a member in case; the
/// second is whether it is meant turned round.
pub(super) fn named(name: &str, fold: bool) -> Option<(Class, bool)> {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).enumerate();
    let name: String = letters
        .map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
        .collect();
    match name.as_str() {
        "Any" => return Some((Arc::new([(0, LAST)]), false)),
        "Ascii" if fold => {
            return Some((Arc::new([(0, 0x7F), (0x17F, 0x17F), (0x212A, 0x212A)]), false));
        }
        "Ascii" => return Some((Arc::new([(0, 0x7F)]), false)),
        "Assigned" => return Some((table("Cn", fold)?, true)),
        "Lc" => return Some((table("LC", fold)?, false)),
        _ => {}
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, category)| *category);
    Some((table(alias.unwrap_or(&name), fold)?, false))
}

fn table(name: &str, fold: bool) -> Option<Class> {
    let category = CATEGORIES.iter().position(|known| *known == name);
    let script = || SCRIPTS.iter().position(|known| *known == name).map(|at| at + CATEGORIES.len());
    let at = category.or_else(script)?;
    let place = if fold { FOLDED.get(at)? } else { KNOWN.get(at)? };
    let query = match name {
        // No text has a surrogate.
        "Cs" => r"[a&&b]".to_owned(),
        "Cn" => r"\P{age:15.0}".to_owned(),
        _ if category.is_some() => format!(r"[\p{{gc:{name}}}&&\p{{age:15.0}}]"),
        _ => format!(r"[\p{{sc:{name}}}&&\p{{age:15.0}}]"),
    };
    let read = || {
        let mut set = Set(of_unicode(&query).to_vec());
        if fold {
            let mut others = set.other_cases();
            set.0.append(&mut others);
        }
        set.into_class()
    };
    Some(Arc::clone(place.get_or_init(read)))
}

/// A set in the words of `regex-syntax`; empty where it has no such.
fn of_unicode(query: &str) -> Class {
    match regex_syntax::parse(query).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => {
            class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()))).collect()
        }
        // A class of one character is a literal to it.
        Ok(HirKind::Literal(literal)) => std::str::from_utf8(&literal.0)
            .unwrap_or("")
            .chars()
            .map(|c| (u32::from(c), u32::from(c)))
            .collect(),
        _ => Arc::new([]),
    }
}

/// A set that is being put together.
#[derive(Debug, Default)]
pub(super) struct Set(Vec<(u32, u32)>);

impl Set {
    pub(super) fn add(&mut self, first: u32, last: u32) {
        self.0.push((first, last));
    }

    pub(super) fn extend(&mut self, ranges: &[(u32, u32)]) {
        self.0.extend_from_slice(ranges);
    }

    /// How many ranges it was put together from.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds all that differs from a member in nothing but its case.
    pub(super) fn fold(&mut self, room: &mut Room) -> Result<(), Refusal> {
        let mut others = self.other_cases();
        room.take(others.len())?;
        self.0.append(&mut others);
        Ok(())
    }

    fn other_cases(&mut self) -> Vec<(u32, u32)> {
        self.tidy();
        let mut others = Vec::new();
        for &(first, last) in &self.0 {
            let from = FOLDS.partition_point(|(c, _)| *c < first);
            let cased =
                FOLDS.get(from..).unwrap_or_default().iter().take_while(|(c, _)| *c <= last);
            others.extend(cased.map(|(_, other)| (*other, *other)));
        }
        others
    }

    pub(super) fn negate(&mut self) {
        self.tidy();
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(first, last) in &self.0 {
            if first > next {
                rest.push((next, first - 1));
            }
            next = last.saturating_add(1);
        }
        if next <= LAST {
            rest.push((next, LAST));
        }
        self.0 = rest;
    }

    pub(super) fn into_class(mut self) -> Class {
        self.tidy();
        self.0.into()
    }

    fn tidy(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|later, earlier| {
            let touches = later.0 <= earlier.1.saturating_add(1);
            if touches {
                earlier.1 = earlier.1.max(later.1);
            }
            touches
        });
    }
}

/// Each character with each other one that differs from it in case alone, in order.
static FOLDS: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let assigned = of_unicode(r"\p{age:15.0}");
    let cased = of_unicode(r"[\p{Changes_When_Casemapped}&&\p{age:15.0}]");
    let mut folds = Vec::new();
    for c in cased.iter().flat_map(|(first, last)| *first..=*last).filter_map(char::from_u32) {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
        class.case_fold_simple();
        let members =
            class.iter().flat_map(|range| u32::from(range.start())..=u32::from(range.end()));
        let others = members.filter(|other| *other != u32::from(c) && contains(&assigned, *other));
        folds.extend(others.map(|other| (u32::from(c), other)));
    }
    folds
});

/// Whether the set has the character.
pub(super) fn contains(class: &[(u32, u32)], c: u32) -> bool {
    let after = class.partition_point(|(first, _)| *first <= c);
    after.checked_sub(1).and_then(|at| class.get(at)).is_some_and(|(_, last)| c <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_table() {
        for name in CATEGORIES.iter().chain(SCRIPTS) {
            let (class, turned) = named(name, false).unwrap_or_else(|| panic!("{name}"));
            assert!(!turned && (*name == "Cs") == class.is_empty(), "{name}");
        }
        for (alias, category) in ALIASES {
            assert_eq!(
                named(alias, false).map(|(class, _)| class),
                named(category, false).map(|(class, _)| class)
            );
        }
        for name in
            ["", "Alphabetic", "Old_Italic", "sc=Greek", "Script=Greek", "L&", "White_Space"]
        {
            assert!(named(name, false).is_none(), "{name}");
        }
        for name in ["letter", "Lowercase Letter", "lowercase_letter", "l-u", "GREEK", "ASCII"] {
            assert!(named(name, false).is_some(), "{name}");
        }
    }

    #[test]
    fn sets_fold_and_turn_round() {
        let mut set = Set::default();
        set.add(u32::from('s'), u32::from('s'));
        set.add(u32::from('k'), u32::from('k'));
        set.fold(&mut Room::new(100)).unwrap();
        let class = set.into_class();
        for c in "sSſkK\u{212A}".chars() {
            assert!(contains(&class, u32::from(c)), "{c}");
        }
        assert!(!contains(&class, u32::from('t')));
        let mut set = Set(class.to_vec());
        set.negate();
        assert_eq!(set.0.first(), Some(&(0, u32::from('J'))));
        assert_eq!(set.0.last(), Some(&(0x212B, LAST)));
        set.negate();
        assert_eq!(set.0, class.to_vec());
    }

    /// The table of what differs in case must be complete, though it is made of a part of
    /// Unicode only.
    #[test]
    fn nothing_else_has_another_case() {
        let assigned = of_unicode(r"\p{age:15.0}");
        for c in '\0'..=char::MAX {
            if FOLDS.binary_search_by_key(&u32::from(c), |(known, _)| *known).is_ok() {
                continue;
            }
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.case_fold_simple();
            let members = class.iter().flat_map(|r| u32::from(r.start())..=u32::from(r.end()));
            let others: Vec<u32> = members.filter(|m| *m != u32::from(c)).collect();
            let is_new = !contains(&assigned, u32::from(c));
            assert!(is_new || !others.iter().any(|o| contains(&assigned, *o)), "{c:?}: {others:?}");
        }
    }
}
