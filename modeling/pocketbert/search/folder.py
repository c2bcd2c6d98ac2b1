"""Names in a search folder, besides training files."""

from __future__ import annotations

JOURNAL_FILE = "journal.jsonl"
CANDIDATE_TEXT_FILE = "candidate_text.jsonl"
TIME_FILE = "seconds.json"
SUPERNET_FOLDER = "supernet"
LEARNING_SUPERNET_FOLDER = "learning_supernet"
CANDIDATES_FOLDER = "candidates"
STUDENT_FOLDER = "student"
# For a latency constraint: its model, and measurements until they are complete.
LATENCY_FILE = "latency.json"
LATENCY_FOLDER = "latency"
SEARCH_FILES = (
    JOURNAL_FILE,
    CANDIDATE_TEXT_FILE,
    TIME_FILE,
    SUPERNET_FOLDER,
    LEARNING_SUPERNET_FOLDER,
    CANDIDATES_FOLDER,
    STUDENT_FOLDER,
    LATENCY_FILE,
    LATENCY_FOLDER,
)
