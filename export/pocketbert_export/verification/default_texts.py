"""Built-in texts for the verification gate, for callers without texts."""

from __future__ import annotations

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.tasks.registry import get_task

# Short and long, with accents, digits, punctuation, addresses, capitals and several scripts.
DEFAULT_TEXTS = (
    "A quiet, honest film that earns every one of its tears.",
    "The plot falls apart after ten minutes, and nobody in the room seemed to care.",
    "Not bad!",
    "Café owners in Zürich paid 1,250 francs more this year than last.",
    "Does the warranty cover a cracked screen, or only faults that were there from the start?",
    "The committee met on Tuesday, argued until midnight, and agreed on nothing except the date of the next meeting.",
    "東京は大きい。",
    "I wanted to like it: the cast is strong, the music is lovely, the photography is some of the best of the year. "
    "But the story never decides what it wants to be, and by the time the third act arrives with its car chases and "
    "its long speeches about family, whatever patience the first hour had won was gone, and I found myself reading the "
    "credits with relief.",
    "Terrible.",
    "Wonderful, simply wonderful.",
    "My order arrived two weeks late, and the box was empty.",
    "How do I change the password of my account?",
    "The battery lasts a full day, even with the brightness turned up.",
    "She moved from Lyon to Montréal in 1998 and opened a bakery there.",
    "Refund me at once or I will cancel the contract!",
    "The train to Kraków leaves at 6:45 from platform 12.",
    "Water boils at 100 °C at sea level, but at about 90 °C on a mountain of 3,000 metres.",
    "Who wrote the first book about this river?",
    "It is neither good nor bad; it is just long.",
    "The museum opens at nine. Children under six enter free of charge.",
    "Please send the invoice to accounts@example.com before Friday.",
    "Version 2.4.1 fixes a crash that occurred when the list was empty.",
    "The nurse said that the swelling would go down in a day or two, and it did.",
    "No.",
    "Yes, of course we can do that for you.",
    "The senator voted against the bill, although her party supported it.",
    "In the second half the home team scored three goals within eleven minutes.",
    "I have never been so bored in a theatre in my whole life.",
    "This recipe needs 250 g of flour, two eggs, a pinch of salt and some patience.",
    "The price fell by 3.5 % in March and rose again in April.",
    "Is there a direct flight from Oslo to Lisbon on Sundays?",
    "The old bridge was closed for repairs, so we walked along the canal to the next one.",
    "WHY IS EVERYTHING SO EXPENSIVE???",
    "the staff was friendly , the room was clean , but the street was loud all night long .",
    "A man is playing a guitar on a stage.",
    "Two dogs run across a field of snow.",
    "The company reported a loss of $4.2 billion for the quarter that ended on 30 June.",
    "He speaks Greek, Turkish and a little Arabic.",
    "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.",
    "Москва стоит на реке Москве.",
    "서울은 한국의 수도이다.",
    "यह एक छोटा वाक्य है।",
    "القاهرة مدينة كبيرة.",
    "Für Straße und Größe gelten neue Regeln.",
    "¿Dónde está la estación de tren más cercana?",
    "What a lovely day 🙂 let us go to the beach",
    "https://example.org/a/long/path?with=parameters&and=more",
    "Set the timer to twenty minutes and turn off the lights in the kitchen.",
    "The court ruled that the law of 1974 does not apply to agreements that were signed abroad.",
    "Her latest novel follows three generations of a family of clockmakers.",
    "The soup was cold, the waiter was rude, and the bill was wrong. We will not come back.",
    "Scientists found traces of water in a sample that had been stored for fifty years.",
    "If it rains tomorrow, the concert takes place in the town hall instead of the park.",
    "I would not say that I disliked it, but I would not watch it again either.",
    "The phone fell into the lake and still works.",
    "According to the report, about one in eight drivers admits to reading messages at the wheel.",
    "The queen of the southern kingdom sent a letter to her brother, the duke.",
    "An unforgettable performance in an otherwise forgettable production.",
    "You can cancel at any time; we will return the rest of the fee within ten working days.",
    "Antibiotics do not help against viruses.",
    "The village has 312 inhabitants, one shop, no school and two churches.",
    "Turn left at the lights, go straight on for half a mile, and you will see the library on your right.",
    "The author describes how the harbour was built, why the railway came so late, and what the merchants of the town "
    "did in the meantime. Most chapters rest on letters that had not been read before. The maps at the end are clear, "
    "the index is complete, and the tables give prices, wages and the number of ships for each year from 1820 to 1875.",
    "When we called the hotline, a recorded voice told us that all lines were busy. After forty minutes somebody "
    "answered, listened to the whole story and transferred us to another department, where nobody picked up. The next "
    "day we tried again with the same result. In the end we drove to the shop, and there a young man solved the "
    "problem in less than five minutes. Why is that not possible on the phone? We have been customers for nine years, "
    "we pay every bill on time, and we expect that somebody reads our messages before the third reminder arrives.",
)

DEFAULT_QUESTION = "What is said here, and of whom?"


def default_examples(task: TaskConfig | None = None) -> Examples:
    """`DEFAULT_TEXTS` as unlabelled examples, with a question each if the task needs pairs."""
    texts = list(DEFAULT_TEXTS)
    pairs = None
    if task is not None and get_task(task).needs_pairs:
        texts, pairs = [DEFAULT_QUESTION] * len(texts), texts
    ids = [str(index) for index in range(len(texts))]
    return Examples(texts=texts, pairs=pairs, labels=None, ids=ids, source="built-in texts")
