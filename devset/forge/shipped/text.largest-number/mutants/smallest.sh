sort -n ~/Documents/{{source}}.log | head -n 1 > ~/Documents/{{target}}.txt
