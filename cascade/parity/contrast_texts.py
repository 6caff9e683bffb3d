# ruff: noqa: RUF001 - text in several scripts
"""Built-in queries, each with a document that answers it and one that only looks as if it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CASES", "FILLER", "OFF_TOPIC", "WINDOW_ANSWER", "WINDOW_QUERY", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A contrast: ``good`` must outscore ``bad``. ``kind`` is what it tries."""

    name: str
    kind: str
    query: str
    good: str
    bad: str


CASES: Final = (
    Case(
        "lighthouse",
        "latin",
        "who keeps the lamp of a lighthouse burning",
        "The keeper trims the wick at dusk and refills the oil twice a night so that the light never goes out.",
        "The lamp shop on the square sells shades, bulbs and wall lights in many colours.",
    ),
    Case(
        "boats",
        "latin",
        "why do steel ships float",
        "A hull pushes aside more water, by weight, than the whole ship weighs, so the water carries it.",
        "Steel is made from iron ore, coal and lime in a furnace, and is rolled into sheets.",
    ),
    Case(
        "bread-german",
        "latin",
        "Warum geht Brotteig auf?",
        "Hefe bildet Gas, und das Gas treibt den Teig auseinander, bis er sich verdoppelt hat.",
        "Der Bäcker öffnet seinen Laden um sechs Uhr und schließt am Mittag.",
    ),
    Case(
        "tide-french",
        "latin",
        "Qu'est-ce qui cause les marées ?",
        "L'attraction de la Lune soulève l'eau des océans deux fois par jour, ce qui fait monter et descendre la mer.",
        "Le port accueille chaque été des voiliers venus de toute la côte.",
    ),
    Case(
        "snow",
        "japanese",
        "雪の結晶はなぜ六角形なのですか",
        "水の分子は凍るときに六角形に並ぶため、雪の結晶も六つの角を持つ形に育ちます。",
        "この町では冬になると雪まつりが開かれ、多くの人が訪れます。",
    ),
    Case(
        "tea",
        "japanese",
        "緑茶と紅茶の違いは何か",
        "どちらも同じ木の葉だが、緑茶は摘んですぐ加熱して発酵を止め、紅茶は葉を十分に発酵させて作る。",
        "お茶の道具を売る店は駅から歩いて五分の所にある。",
    ),
    Case(
        "kimchi",
        "korean",
        "김치는 왜 시어지나요",
        "김치가 익으면서 유산균이 당을 젖산으로 바꾸기 때문에 시간이 지날수록 신맛이 강해진다.",
        "시장에서는 배추와 무를 아침 일찍부터 판다.",
    ),
    Case(
        "moon",
        "korean",
        "달의 모양이 바뀌는 이유",
        "달이 지구를 도는 동안 햇빛을 받은 면이 보이는 정도가 달라져서 모양이 바뀌어 보인다.",
        "달력은 종이나 전자 기기로 볼 수 있고 벽에 거는 것도 있다.",
    ),
    Case(
        "desert",
        "arabic",
        "لماذا تبرد الصحراء في الليل؟",
        "الهواء الجاف والسماء الصافية لا يحتفظان بالحرارة، ولذلك تنخفض درجة حرارة الصحراء بسرعة بعد الغروب.",
        "يبيع التجار التمر والقماش في سوق المدينة كل صباح.",
    ),
    Case(
        "bridge",
        "han",
        "拱桥为什么坚固",
        "拱把桥面的重量沿着弧线传到两端的桥墩，石头只受到挤压，所以拱桥非常坚固。",
        "桥边有一家小饭馆，每天中午都坐满了客人。",
    ),
    Case(
        "ice",
        "cyrillic",
        "Почему лёд плавает на воде?",
        "При замерзании вода расширяется, поэтому лёд легче воды того же объёма и остаётся на поверхности.",
        "Зимой на реке строят каток, и по вечерам там играет музыка.",
    ),
    Case(
        "torque",
        "digits",
        "tightening torque for an M10 bolt of grade 8.8",
        "M10 bolts of grade 8.8 are tightened to 49 Nm when dry.",
        "M6 bolts of grade 4.6 are tightened to 4 Nm when dry.",
    ),
    Case(
        "year",
        "digits",
        "population of the town in 1987",
        "In the count of 1987 the town had 41,250 inhabitants.",
        "In the count of 2011 the town had 58,900 inhabitants.",
    ),
    Case(
        "boiling",
        "digits",
        "at what temperature does water boil at 3000 m",
        "At an altitude of 3000 m water boils at about 90 °C, since the pressure is lower.",
        "A fridge keeps water at 4 °C, and a pool is heated to 26 °C.",
    ),
    Case(
        "error-code",
        "digits",
        "what does error E-4711 of the pump mean",
        "E-4711: the pump ran dry. Open the inlet and start again.",
        "E-4771: the door is open. Close it and start again.",
    ),
    Case(
        "negation-nuts",
        "negation",
        "cake recipe without nuts",
        "This cake contains no nuts: flour, eggs, butter, sugar and lemon are all it needs.",
        "This cake needs a cup of nuts and half a cup of almonds, chopped well.",
    ),
    Case(
        "negation-pets",
        "negation",
        "hotels that do not allow dogs",
        "Dogs are not allowed in this hotel, neither in the rooms nor in the garden.",
        "Dogs are welcome in this hotel and get a basket and a bowl.",
    ),
    Case(
        "direction",
        "entity",
        "ferry from Norby to Sudholm",
        "The ferry leaves Norby at seven and reaches Sudholm an hour later.",
        "The museum of Sudholm shows paintings of ferries and their captains.",
    ),
    Case("short", "short", "salt", "Salt makes food keep.", "A red hat."),
)
"""Written for this project."""

WINDOW_QUERY: Final = "how often must the filter of the coffee machine be changed"
WINDOW_ANSWER: Final = "Change the filter of the coffee machine every two months, or after 200 cups. "
FILLER: Final = (
    "The machine has a lid, a tank and a tray. The tray is taken out by hand and washed with warm water. "
    "The cable must not lie near a stove. Keep the box, in case it has to be sent back. "
)
OFF_TOPIC: Final = (
    "The valley lies between two ranges of hills. In spring the meadows are full of flowers and the river is high. "
    "A path leads along the bank to the old mill, which has not worked for many years. "
)
