# step: Write the lines of {{source}}.txt in reverse order
tac ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt
