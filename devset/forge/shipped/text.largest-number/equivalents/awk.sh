awk '$1 > most { most = $1 } END { print most }' ~/Documents/{{source}}.log > ~/Documents/{{target}}.txt
