"""The grading benchmark: graders side by side."""
