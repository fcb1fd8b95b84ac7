tac ~/Desktop/{{source}}.txt > ~/Desktop/new && mv ~/Desktop/new ~/Desktop/{{source}}.txt
