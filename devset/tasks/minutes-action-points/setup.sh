cp "$HIDDEN/minutes.txt" Desktop/minutes.txt
