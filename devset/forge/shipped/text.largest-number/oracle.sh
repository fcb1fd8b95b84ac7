# step: Find the largest number and write it down
sort -n ~/Documents/{{source}}.log | tail -n 1 > ~/Documents/{{target}}.txt
