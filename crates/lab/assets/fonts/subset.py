"""Makes the two font files of this folder: python3 subset.py FOLDER_WITH_INTER

Needs fonttools. Inter has no nabla; it is added as the mirror image of Delta.
"""

import sys
from pathlib import Path

from fontTools.misc.transform import Transform
from fontTools.pens.boundsPen import BoundsPen
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.transformPen import TransformPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

UNICODES = [
    *range(0x20, 0x7F),  # Basic Latin
    *range(0xA0, 0x100),  # Latin-1
    *range(0x391, 0x3AA), *range(0x3B1, 0x3CA), 0x3D1, 0x3D5, 0x3F5,  # Greek
    *range(0x300, 0x305),  # accents, as in r̄
    *range(0x2070, 0x2095),  # superscripts and subscripts
    *map(ord, "‐‑–—‘’“”•…′″‖⁄ℓ−×·√∞≤≥≈≠±∂∑∏∫←→↑↓↔⇒✓✗▲▼■●◆★½"),
]


def add_nabla(font):
    cmap = font.getBestCmap()
    delta = cmap.get(0x394) or cmap[0x2206]
    glyphs = font.getGlyphSet()
    bounds = BoundsPen(glyphs)
    glyphs[delta].draw(bounds)
    mirror = Transform(1, 0, 0, -1, 0, bounds.bounds[1] + bounds.bounds[3])
    cff = font["CFF "].cff.topDictIndex[0]
    old = cff.CharStrings[delta]
    width = font["hmtx"][delta][0] - old.private.nominalWidthX
    pen = T2CharStringPen(width, glyphs)
    glyphs[delta].draw(TransformPen(pen, mirror))
    outline = pen.getCharString(private=old.private, globalSubrs=cff.GlobalSubrs)
    # The empty set, not otherwise kept, gives its place to the nabla: no new glyph name, no change to other tables.
    place = cmap[0x2205]
    cff.CharStrings[place] = outline
    font["hmtx"][place] = font["hmtx"][delta]
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap.pop(0x2205, None)
            table.cmap[0x2207] = place
            table.cmap[0x2225] = table.cmap[0x2016]  # ∥ drawn as ‖


def main(source):
    for weight in ["Regular", "SemiBold"]:
        font = TTFont(source / f"Inter-{weight}.otf")
        add_nabla(font)
        options = Options()
        options.layout_features = ["kern", "mark", "ccmp"]
        options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 13, 14, 16, 17]
        options.hinting = False
        options.notdef_outline = True
        subsetter = Subsetter(options)
        subsetter.populate(unicodes=[*UNICODES, 0x2207, 0x2225])
        subsetter.subset(font)
        font.save(Path(__file__).parent / f"Inter-{weight}.subset.otf")


main(Path(sys.argv[1]))
