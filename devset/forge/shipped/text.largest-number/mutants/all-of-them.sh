sort -n ~/Documents/{{source}}.log > ~/Documents/{{target}}.txt
