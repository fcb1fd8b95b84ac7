cp ~/Desktop/{{source}}.txt ~/Desktop/{{target}}.txt
