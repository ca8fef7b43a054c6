"""Draws a page to try the demo models on: `page.png`, `line.png`, and `page-90.jpg`, `page-180.jpg`, `page-270.jpg`.

    python docs/examples/make_pages.py

Writes into the current folder; NumPy and OpenCV came with the server.
"""

from __future__ import annotations

import cv2
import numpy as np

LINES = (
    "Inferlane runs the requests of",
    "many clients as one batch, padded",
    "to buckets whose cost it measured,",
    "and says of every request where",
    "its time went.",
)
LINE_HEIGHT = 70
TURNS = {90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}

if __name__ == "__main__":
    page = np.full((LINE_HEIGHT * (len(LINES) + 1), 900, 3), 245, np.uint8)
    for number, line in enumerate(LINES, start=1):
        cv2.putText(page, line, (40, LINE_HEIGHT * number), cv2.FONT_HERSHEY_COMPLEX, 1.3, (40, 40, 40), 2, cv2.LINE_AA)
    cv2.imwrite("page.png", page)
    cv2.imwrite("line.png", page[LINE_HEIGHT - 45 : LINE_HEIGHT + 20])
    for angle, turn in TURNS.items():
        cv2.imwrite(f"page-{angle}.jpg", cv2.rotate(page, turn))
    print("wrote page.png, line.png and page-90.jpg, page-180.jpg, page-270.jpg")
