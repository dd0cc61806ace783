#include "evaluate/word_lists.h"

#include <array>

namespace kv::word_lists {
namespace {

using std::string_view_literals::operator""sv;

// clang-format off
constexpr std::array kNouns = {
    "anchor"sv, "apple"sv, "apron"sv, "arch"sv, "arrow"sv, "attic"sv, "badge"sv, "baker"sv, "balcony"sv, "banner"sv,
    "barn"sv, "barrel"sv, "basin"sv, "basket"sv, "beach"sv, "beacon"sv, "bell"sv, "bench"sv, "bird"sv, "blanket"sv,
    "boat"sv, "book"sv, "boot"sv, "bottle"sv, "bowl"sv, "box"sv, "branch"sv, "bread"sv, "brick"sv, "bridge"sv,
    "broom"sv, "brush"sv, "bucket"sv, "button"sv, "cabin"sv, "cable"sv, "camel"sv, "camera"sv, "camp"sv, "canal"sv,
    "candle"sv, "canvas"sv, "captain"sv, "card"sv, "carpet"sv, "cart"sv, "castle"sv, "cave"sv, "cellar"sv, "chain"sv,
    "chair"sv, "chapel"sv, "cherry"sv, "chest"sv, "chimney"sv, "circle"sv, "clerk"sv, "cliff"sv, "clock"sv, "cloud"sv,
    "coach"sv, "coast"sv, "coat"sv, "coin"sv, "cook"sv, "copper"sv, "corner"sv, "cottage"sv, "cotton"sv, "court"sv,
    "cousin"sv, "cradle"sv, "crane"sv, "creek"sv, "crown"sv, "cup"sv, "curtain"sv, "dancer"sv, "desert"sv, "desk"sv,
    "doctor"sv, "door"sv, "dove"sv, "drawer"sv, "driver"sv, "drum"sv, "eagle"sv, "engine"sv, "farmer"sv, "feather"sv,
    "fence"sv, "ferry"sv, "field"sv, "fisher"sv, "flag"sv, "flame"sv, "flower"sv, "flute"sv, "forest"sv, "fork"sv,
    "fountain"sv, "fox"sv, "frame"sv, "garden"sv, "gate"sv, "glass"sv, "glove"sv, "goat"sv, "grape"sv, "guard"sv,
    "guest"sv, "guitar"sv, "hall"sv, "hammer"sv, "harbor"sv, "hat"sv, "hedge"sv, "hill"sv, "horse"sv, "hotel"sv,
    "hunter"sv, "island"sv, "jacket"sv, "jar"sv, "judge"sv, "kettle"sv, "key"sv, "kitchen"sv, "kite"sv, "ladder"sv,
    "lake"sv, "lamp"sv, "lantern"sv, "leaf"sv, "lemon"sv, "letter"sv, "library"sv, "lion"sv, "lock"sv, "loom"sv,
    "mango"sv, "map"sv, "marble"sv, "market"sv, "mason"sv, "meadow"sv, "medal"sv, "miller"sv, "mine"sv, "mirror"sv,
    "monk"sv, "moon"sv, "mountain"sv, "museum"sv, "needle"sv, "nest"sv, "oak"sv, "ocean"sv, "office"sv, "olive"sv,
    "onion"sv, "orange"sv, "orchard"sv, "oven"sv, "owl"sv, "paddle"sv, "painter"sv, "palace"sv, "panel"sv, "paper"sv,
    "park"sv, "parrot"sv, "path"sv, "pearl"sv, "pencil"sv, "pepper"sv, "piano"sv, "pigeon"sv, "pillow"sv, "pilot"sv,
    "pine"sv, "pipe"sv, "plate"sv, "pocket"sv, "pond"sv, "porch"sv, "port"sv, "potter"sv, "prince"sv, "quarry"sv,
    "queen"sv, "rabbit"sv, "rail"sv, "ribbon"sv, "ring"sv, "river"sv, "road"sv, "robe"sv, "rocket"sv, "roof"sv,
    "rope"sv, "rose"sv, "saddle"sv, "sail"sv, "sailor"sv, "school"sv, "shed"sv, "shell"sv, "shepherd"sv, "shield"sv,
    "ship"sv, "shore"sv, "singer"sv, "spoon"sv, "stable"sv, "stairs"sv, "station"sv, "statue"sv, "stone"sv, "stream"sv,
    "street"sv, "table"sv, "tailor"sv, "teacher"sv, "temple"sv, "tent"sv, "tiger"sv, "tower"sv, "train"sv, "tree"sv,
    "tunnel"sv, "valley"sv, "village"sv, "violin"sv, "wagon"sv, "wall"sv, "watch"sv, "whale"sv, "wheel"sv, "window"sv,
    "wolf"sv, "wood"sv, "writer"sv, "yard"sv};

constexpr std::array kAdjectives = {
    "able"sv, "ancient"sv, "angry"sv, "autumn"sv, "bare"sv, "bitter"sv, "black"sv, "blank"sv, "blind"sv, "blue"sv,
    "bold"sv, "brave"sv, "brief"sv, "bright"sv, "broad"sv, "broken"sv, "bronze"sv, "brown"sv, "busy"sv, "calm"sv,
    "careful"sv, "central"sv, "cheap"sv, "cheerful"sv, "clean"sv, "clear"sv, "clever"sv, "cold"sv, "common"sv, "cool"sv,
    "crooked"sv, "curious"sv, "curved"sv, "damp"sv, "dark"sv, "dear"sv, "deep"sv, "dense"sv, "distant"sv, "double"sv,
    "dry"sv, "dull"sv, "dusty"sv, "eager"sv, "early"sv, "eastern"sv, "easy"sv, "elder"sv, "empty"sv, "entire"sv,
    "equal"sv, "exact"sv, "faint"sv, "fair"sv, "false"sv, "famous"sv, "fancy"sv, "fast"sv, "fertile"sv, "fierce"sv,
    "final"sv, "fine"sv, "firm"sv, "flat"sv, "foreign"sv, "formal"sv, "fresh"sv, "friendly"sv, "frozen"sv, "full"sv,
    "gentle"sv, "giant"sv, "glad"sv, "golden"sv, "good"sv, "grand"sv, "gray"sv, "great"sv, "green"sv, "happy"sv,
    "hard"sv, "heavy"sv, "hidden"sv, "high"sv, "hollow"sv, "honest"sv, "hot"sv, "huge"sv, "humble"sv, "hungry"sv,
    "idle"sv, "inner"sv, "jolly"sv, "keen"sv, "kind"sv, "large"sv, "late"sv, "lazy"sv, "lean"sv, "light"sv,
    "little"sv, "lively"sv, "local"sv, "lonely"sv, "long"sv, "loose"sv, "lost"sv, "loud"sv, "low"sv, "lucky"sv,
    "mad"sv, "major"sv, "merry"sv, "mild"sv, "minor"sv, "modern"sv, "modest"sv, "muddy"sv, "narrow"sv, "neat"sv,
    "new"sv, "nice"sv, "noble"sv, "noisy"sv, "northern"sv, "odd"sv, "old"sv, "open"sv, "outer"sv, "oval"sv,
    "painted"sv, "pale"sv, "patient"sv, "perfect"sv, "pink"sv, "plain"sv, "polite"sv, "poor"sv, "pretty"sv, "private"sv,
    "proper"sv, "proud"sv, "public"sv, "pure"sv, "purple"sv, "quick"sv, "quiet"sv, "rapid"sv, "rare"sv, "raw"sv,
    "ready"sv, "real"sv, "red"sv, "rich"sv, "rigid"sv, "ripe"sv, "rough"sv, "round"sv, "royal"sv, "rural"sv,
    "rusty"sv, "sacred"sv, "safe"sv, "salty"sv, "scarlet"sv, "secret"sv, "serious"sv, "shallow"sv, "sharp"sv, "short"sv,
    "shy"sv, "silent"sv, "silver"sv, "simple"sv, "sleepy"sv, "slim"sv, "slow"sv, "small"sv, "smart"sv, "smooth"sv,
    "soft"sv, "solid"sv, "southern"sv, "square"sv, "stately"sv, "steady"sv, "steep"sv, "stiff"sv, "strange"sv, "strict"sv,
    "strong"sv, "sunny"sv, "sweet"sv, "swift"sv, "tall"sv, "tame"sv, "tender"sv, "thick"sv, "thin"sv, "tidy"sv,
    "tight"sv, "tiny"sv, "tired"sv, "upper"sv, "urban"sv, "vast"sv, "warm"sv, "weak"sv, "western"sv, "white"sv,
    "wide"sv, "wild"sv, "wise"sv, "wooden"sv, "yellow"sv, "young"sv};

constexpr std::array kVerbs = {
    "admired"sv, "approached"sv, "built"sv, "carried"sv, "circled"sv, "cleaned"sv, "closed"sv, "covered"sv, "crossed"sv,
    "described"sv, "entered"sv, "faced"sv, "filled"sv, "followed"sv, "forgot"sv, "found"sv, "guarded"sv, "held"sv,
    "joined"sv, "kept"sv, "left"sv, "liked"sv, "lifted"sv, "loved"sv, "met"sv, "missed"sv, "moved"sv, "needed"sv,
    "noticed"sv, "opened"sv, "ordered"sv, "owned"sv, "passed"sv, "praised"sv, "pulled"sv, "pushed"sv, "reached"sv,
    "remembered"sv, "repaired"sv, "reported"sv, "saved"sv, "shared"sv, "showed"sv, "sold"sv, "studied"sv, "touched"sv,
    "traded"sv, "used"sv, "visited"sv, "watched"sv};

constexpr std::array kPrepositions = {"above"sv, "across"sv, "behind"sv, "below"sv, "beneath"sv, "beside"sv, "beyond"sv,
                                      "by"sv, "inside"sv, "near"sv, "opposite"sv, "outside"sv, "past"sv, "under"sv};

constexpr std::array kRepeatedSentences = {
    "The rain fell on the roof all day."sv,
    "People came and went along the road."sv,
    "A light wind moved the leaves."sv,
    "Nobody said anything of importance."sv,
    "Then the evening came and the lamps were lit."sv};
// clang-format on

static_assert(kNouns.size() + kAdjectives.size() >= 400);

}  // namespace

std::span<const std::string_view> nouns() { return kNouns; }
std::span<const std::string_view> adjectives() { return kAdjectives; }
std::span<const std::string_view> verbs() { return kVerbs; }
std::span<const std::string_view> prepositions() { return kPrepositions; }
std::span<const std::string_view> repeated_sentences() { return kRepeatedSentences; }

}  // namespace kv::word_lists
