tac ~/Desktop/{{source}}.txt | head -n 5 > ~/Desktop/{{target}}.txt
