wc -l < ~/Documents/{{source}}.log > ~/Documents/{{target}}.txt
