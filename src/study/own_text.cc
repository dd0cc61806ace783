#include "study/own_text.h"

namespace kv {

std::string_view own_text() {
  return R"text(The harbour master's notebook

Every morning before the ferries leave, the harbour master walks the length of the north quay and writes down what he
sees. He has done this for twenty-three years, in notebooks with grey covers that the town council buys by the dozen. The
entries are short. "Wind from the west, four knots. The Anna Lise is low in the water; asked the skipper, who says it is
the ice. Two gulls on the third bollard, as usual." Nobody asked him to write about the gulls, but after a storm tore away
half of the pier the insurers wanted to know when the third bollard had last been seen upright, and the gulls settled the
matter to the day.

What makes such notes useful is that he never writes what he expects to see. A young assistant once filled in the tide
before going out, because the tables are printed years ahead and are rarely wrong by more than a hand's breadth. On the
day the lock gate jammed, the printed tide and the real one differed by almost a metre, and the assistant's neat column of
figures was worth nothing. Since then the rule of the house has been: first look, then write, and if you did not look,
leave the line empty.

A small program for the same job

The town's school wanted to put the notebooks into a computer. One of the pupils wrote this:

    from dataclasses import dataclass
    from datetime import date

    @dataclass(frozen=True)
    class Sighting:
        day: date
        vessel: str
        draught_m: float
        note: str = ""

    def heaviest(sightings: list[Sighting], year: int) -> dict[str, float]:
        """Largest draught of each vessel in one year, in metres."""
        result: dict[str, float] = {}
        for s in sightings:
            if s.day.year != year:
                continue
            result[s.vessel] = max(result.get(s.vessel, 0.0), s.draught_m)
        return result

    if __name__ == "__main__":
        log = [
            Sighting(date(2019, 3, 4), "Anna Lise", 3.45, "ice"),
            Sighting(date(2019, 3, 5), "Brede", 2.10),
            Sighting(date(2019, 7, 19), "Anna Lise", 3.05),
            Sighting(date(2020, 1, 2), "Brede", 2.62, "new engine"),
        ]
        for vessel, draught in sorted(heaviest(log, 2019).items()):
            print(f"{vessel:12s} {draught:5.2f} m")

Her teacher liked it and asked a question that she could not answer at once: what does the program say about a year in
which nobody looked? It prints nothing, which is what the notebook does as well.

Figures for the spring

    month      ferries   passengers   late by more than 10 min   mean wind (knots)
    January        310       41 802                         27                15.2
    February       280       39 164                         31                16.8
    March          310       47 950                         12                12.4
    April          300       58 211                          9                 9.7
    May            340       80 476                          6                 8.1

If a ferry carries on average 41802 / 310 = 134.8 people in January and 80476 / 340 = 236.7 in May, then a late ferry in
May keeps 1.76 times as many people waiting; the 6 late ferries of May cost about 1,420 passengers their time, the 27 of
January about 3,641. The council discussed this for an hour and decided to buy a second winch.

A conversation on the quay

"Is the 7:40 running today?" asked a woman with a bicycle.
"It is running," said the harbour master, "but not from here. Gate four, behind the fish hall. Mind the rails."
"And the one at nine?"
"Ask me at half past eight. I have not looked yet."
She laughed. "You could look it up."
"I could. Then you would know what the timetable says, which is printed on the wall behind you, and I would know nothing
at all about the nine o'clock ferry."

Instructions for the lock

1. Close the lower gates and wait until both lamps are green.
2. Open the upper sluices by a quarter turn. Count to sixty. If the level does not rise by at least 20 cm, stop and call.
3. Open the sluices fully. Do not open the gates while the levels differ by more than 5 cm.
4. Write the time, the levels above and below, and the names of the vessels into the book.
5. When the book is full, take it to the archive: second floor, shelf C, in the order of the years.

Dans le vieux port, on disait la même chose autrement : il faut d'abord regarder, puis écrire. Am alten Hafen sagte man
es kürzer: erst sehen, dann schreiben. The sentence is carved above the door of the lock house, and below it somebody has
added in chalk, some years ago and in a different hand: "and then check it against the gulls."
)text";
}

}  // namespace kv
