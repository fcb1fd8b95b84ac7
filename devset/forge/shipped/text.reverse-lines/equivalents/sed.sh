sed -n '1!G;h;$p' ~/Desktop/{{source}}.txt > ~/Desktop/{{target}}.txt
