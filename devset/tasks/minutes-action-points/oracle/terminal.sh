# step: Correct the word
sed -i 's/postponed/cancelled/' ~/Desktop/minutes.txt

