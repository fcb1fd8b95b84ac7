rev ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt
